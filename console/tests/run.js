// Runs the tests of the console: node run.js PATH-TO-tenure [--screenshots DIR] [NAME...]

import { mkdirSync } from 'node:fs';
import { executable, launch, Tabs } from './browser.js';

const args = process.argv.slice(2);
const binary = args.shift();
const at = args.indexOf('--screenshots');
const shots = at >= 0 ? args.splice(at, 2)[1] : undefined;
if (!binary || !executable()) {
  console.error(binary ? 'there is no Chromium: install the package chromium, or set CHROMIUM' : 'usage: node run.js PATH-TO-tenure [--screenshots DIR] [NAME...]');
  process.exit(2);
}
if (shots) mkdirSync(shots, { recursive: true });
// The members are ended when this process exits; a signal alone would leave them.
for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP']) process.on(signal, () => process.exit(1));

// The longest first. Several at once: they mostly wait.
const suites = ['scale', 'pages', 'live', 'acts', 'security', 'failures', 'certificate', 'blocking', 'past'];
const AT_ONCE = 3;
/** A test that takes longer than all that it waits for together hangs. */
const TEST_MS = 600_000;
const browser = await launch();
let passed = 0;
const failed = [];

async function bounded(work) {
  let timer;
  const late = new Promise((_, reject) => {
    timer = setTimeout(() => reject(new Error(`it did not end in ${TEST_MS / 1000} s`)), TEST_MS);
  });
  try {
    return await Promise.race([work, late]);
  } finally {
    clearTimeout(timer);
  }
}

async function run(name) {
  const suite = await import(`./${name}.js`);
  const wanted = suite.tests.filter((test) => !args.length || args.some((word) => name === word || test.name.includes(word)));
  if (!wanted.length) return;
  const tabs = new Tabs(browser);
  // What a stage has started is stopped also if it does not come to its end.
  const opened = [];
  const opens = (it) => {
    opened.push(it);
    return it;
  };
  try {
    const stage = await bounded(suite.stage(binary, opens));
    const browserOf = stage.browser || tabs;
    for (const test of wanted) {
      const began = Date.now();
      try {
        await bounded(test({ ...stage, browser: browserOf, shots }));
        passed += 1;
        console.log(`test ${name}::${test.name} ... ok (${Date.now() - began} ms)`);
      } catch (error) {
        failed.push(test.name);
        console.log(`test ${name}::${test.name} ... FAILED (${Date.now() - began} ms)\n${error.stack}`);
        for (const it of opened) if (it.words) console.log(it.words());
      } finally {
        await browserOf.closeAll();
      }
    }
  } finally {
    for (const it of opened) await it.stop();
  }
}

const waiting = [...suites];
const worker = async () => {
  for (let name = waiting.shift(); name; name = waiting.shift()) {
    await run(name).catch((error) => {
      failed.push(name);
      console.log(`test ${name} ... FAILED: outside of its tests: ${error.message}\n${error.stack}`);
    });
  }
};
await Promise.all(Array.from({ length: AT_ONCE }, worker));
await browser.close();
console.log(`\ntest result: ${failed.length ? 'FAILED' : 'ok'}. ${passed} passed; ${failed.length} failed; 0 ignored`);
process.exit(failed.length ? 1 : 0);
