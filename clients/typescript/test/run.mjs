// Runs every test file, each in a process of its own and within a time limit.
import { spawnSync } from "node:child_process";
import { readdirSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";

const LIMIT_MS = 180_000;
const here = dirname(fileURLToPath(import.meta.url));
const words = process.argv.slice(2);
const files = readdirSync(here).filter((it) => it.endsWith(".test.mjs"));
let failed = 0;
for (const file of files.filter((it) => words.length === 0 || words.some((word) => it.includes(word))).sort()) {
  const run = spawnSync(process.execPath, [join(here, file)], { encoding: "utf8", timeout: LIMIT_MS, killSignal: "SIGKILL" });
  const passed = run.status === 0;
  failed += passed ? 0 : 1;
  const count = /^# pass (\d+)/m.exec(run.stdout)?.[1] ?? 0;
  console.log(`${passed ? "ok    " : "FAILED"} ${file} (${count} passed)`);
  for (const line of run.stdout.match(/^(?:# )?(?:vectors|planted|readme|package|guide|browser) .*$/gm) ?? []) console.log(`       ${line}`);
  if (!passed) console.log(run.stdout, run.stderr);
}
console.log(`typescript files=${files.length} failed=${failed}`);
process.exit(failed === 0 ? 0 : 1);
