// Runs the tests of the console: node run.js PATH-TO-tenure [--screenshots DIR] [NAME...]

import { mkdirSync } from 'node:fs';
import { executable, launch } from './browser.js';

const args = process.argv.slice(2);
const binary = args.shift();
const at = args.indexOf('--screenshots');
const shots = at >= 0 ? args.splice(at, 2)[1] : undefined;
if (!binary || !executable()) {
  console.error(binary ? 'there is no Chromium: install the package chromium, or set CHROMIUM' : 'usage: node run.js PATH-TO-tenure [--screenshots DIR] [NAME...]');
  process.exit(2);
}
if (shots) mkdirSync(shots, { recursive: true });

// The longest first. Several at once: they mostly wait.
const suites = ['scale', 'pages', 'acts', 'security', 'failures', 'live'];
const AT_ONCE = 3;
const browser = await launch();
let passed = 0;
const failed = [];

async function run(name) {
  const suite = await import(`./${name}.js`);
  const wanted = suite.tests.filter((test) => !args.length || args.some((word) => name === word || test.name.includes(word)));
  if (!wanted.length) return;
  const stage = await suite.stage(binary);
  try {
    for (const test of wanted) {
      const began = Date.now();
      try {
        await test({ browser, shots, ...stage });
        passed += 1;
        console.log(`test ${name}::${test.name} ... ok (${Date.now() - began} ms)`);
      } catch (error) {
        failed.push(test.name);
        console.log(`test ${name}::${test.name} ... FAILED (${Date.now() - began} ms)\n${error.stack}`);
      }
    }
  } finally {
    await stage.stop();
  }
}

const waiting = [...suites];
const worker = async () => {
  for (let name = waiting.shift(); name; name = waiting.shift()) {
    await run(name).catch((error) => {
      failed.push(name);
      console.log(`test ${name} ... FAILED: before its first test: ${error.message}\n${error.stack}`);
    });
  }
};
await Promise.all(Array.from({ length: AT_ONCE }, worker));
await browser.close();
console.log(`\ntest result: ${failed.length ? 'FAILED' : 'ok'}. ${passed} passed; ${failed.length} failed; 0 ignored`);
process.exit(failed.length ? 1 : 0);
