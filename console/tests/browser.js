// Opens pages in a headless Chromium and watches what they must not do.

import { existsSync, readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { chromium } from 'playwright-core';

const AXE = readFileSync(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8');
const FLAGS = ['--no-sandbox', '--disable-gpu', '--disable-quic', '--no-first-run', '--disable-background-networking', '--disable-component-update', '--disable-sync'];

const TYPES = { js: 'text/javascript', css: 'text/css', svg: 'image/svg+xml' };
async function fromDirectory(route) {
  const name = new URL(route.request().url()).pathname.split('/').slice(3).join('/');
  await route.fulfill({ body: readFileSync(`${process.env.CONSOLE_DIR}/${name}`), contentType: TYPES[name.split('.').pop()] });
}

export function executable() {
  const known = [process.env.CHROMIUM, '/usr/bin/chromium', '/usr/bin/chromium-browser', '/usr/bin/google-chrome'];
  return known.find((path) => path && existsSync(path));
}

export async function launch() {
  return chromium.launch({ executablePath: executable(), headless: true, args: FLAGS });
}

/** A page that notes errors, and requests to anything but its own member. */
export class Page {
  static async open(browser, base, options = {}) {
    const context = await browser.newContext({ viewport: { width: 1280, height: 860 }, reducedMotion: 'reduce', bypassCSP: false, ...options });
    // While the console is being written: its files from the directory instead of those in the binary.
    if (process.env.CONSOLE_DIR) await context.route(/\/console\/[0-9a-f]+\//, fromDirectory);
    const page = await context.newPage();
    const it = new Page();
    Object.assign(it, { context, page, base, errors: [], outside: [], expected: [] });
    page.on('console', (message) => {
      if (message.type() === 'error' || message.type() === 'warning') it.errors.push(`${message.type()}: ${message.text()}`);
    });
    page.on('pageerror', (error) => it.errors.push(`${error.stack || error}`));
    page.on('request', (request) => {
      const url = request.url();
      if (!url.startsWith(`${base}/`) && !url.startsWith('data:')) it.outside.push(url);
    });
    return it;
  }

  async go(hash) {
    await this.page.goto(`${this.base}/${hash}`);
    await this.page.waitForSelector('main h1');
  }

  /** Waits until the page shows a text. */
  async sees(text, ms = 15_000) {
    await this.page.waitForFunction((wanted) => document.body.innerText.includes(wanted), text, { timeout: ms }).catch(async () => {
      throw new Error(`the page does not show ${JSON.stringify(text)} but ${JSON.stringify((await this.text()).slice(0, 1500))}`);
    });
  }

  async seesNot(text, ms = 15_000) {
    await this.page.waitForFunction((wanted) => !document.body.innerText.includes(wanted), text, { timeout: ms }).catch(() => {
      throw new Error(`the page still shows ${JSON.stringify(text)}`);
    });
  }

  text() {
    return this.page.evaluate(() => document.body.innerText);
  }

  /** What axe finds wrong, in words. */
  async violations() {
    // The policy of the page forbids scripts from elsewhere: axe comes through the debugger, as an expression.
    await this.page.evaluate(AXE);
    const found = await this.page.evaluate(() => window.axe.run(document, { resultTypes: ['violations'] }));
    return found.violations.map((it) => `${it.id}: ${it.help}: ${it.nodes.slice(0, 3).map((node) => node.html.slice(0, 160)).join(' | ')}`);
  }

  /** Errors that were not expected. */
  problems() {
    return this.errors.filter((error) => !this.expected.some((pattern) => pattern.test(error)));
  }

  async close() {
    await this.context.close();
  }
}
