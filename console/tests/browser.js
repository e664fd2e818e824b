// Opens pages in a headless Chromium and watches what they must not do.

import { existsSync, readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { chromium } from 'playwright-core';
import { PATIENCE_MS } from './cluster.js';

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

// The browser reports every answer of this kind as an error of the page. It says that the member has too much to do or no
// leader at the moment, which a page gets over.
const PASSING = /responded with a status of (429|503|504)\b/;

export async function launch() {
  return chromium.launch({ executablePath: executable(), headless: true, args: FLAGS, timeout: 2 * PATIENCE_MS });
}

/** The pages of one suite, in a browser that suites share. */
export class Tabs {
  constructor(browser) {
    this.browser = browser;
    this.contexts = new Set();
  }

  async newContext(options) {
    const context = await this.browser.newContext(options);
    context.setDefaultTimeout(PATIENCE_MS);
    this.contexts.add(context);
    context.on('close', () => this.contexts.delete(context));
    return context;
  }

  /** Closes what a failed test left open. */
  async closeAll() {
    for (const context of [...this.contexts]) await context.close();
  }
}

/** A page that notes errors, and requests to anything but its own member. */
export class Page {
  static async open(tabs, base, options = {}) {
    const context = await tabs.newContext({ viewport: { width: 1280, height: 860 }, reducedMotion: 'reduce', bypassCSP: false, ...options });
    // While the console is being written: its files from the directory instead of those in the binary.
    if (process.env.CONSOLE_DIR) await context.route(/\/console\/[0-9a-f]+\//, fromDirectory);
    const page = await context.newPage();
    const it = new Page();
    Object.assign(it, { context, page, base, errors: [], outside: [], expected: [PASSING] });
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
  async sees(text) {
    await this.page.waitForFunction((wanted) => document.body.innerText.includes(wanted), text).catch(async () => {
      throw new Error(`the page does not show ${JSON.stringify(text)} but ${JSON.stringify((await this.text()).slice(0, 1500))}`);
    });
  }

  async seesNot(text) {
    await this.page.waitForFunction((wanted) => !document.body.innerText.includes(wanted), text).catch(() => {
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
