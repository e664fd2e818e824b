// Plants each bug, and shows that a vector or a play against a real server catches it.
import test from "node:test";
import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { fileURLToPath } from "node:url";

const play = fileURLToPath(new URL("./planted.mjs", import.meta.url));
const runs = (bug, by) => spawnSync(process.execPath, [play, bug, by], { encoding: "utf8", timeout: 60_000 });

const CAUGHT_BY = {
  renewal_from_answer: "vectors",
  loss_not_final: "vectors",
  release_while_working: "vectors",
  check_by_timer: "vectors",
  retry_without_id: "lost_answer",
};

for (const by of new Set([...Object.values(CAUGHT_BY), "blocked_loop"])) {
  test(`without a planted bug, ${by} finds nothing`, () => {
    const run = runs("none", by);
    assert.equal(run.status, 0, run.stdout + run.stderr);
  });
}

for (const [bug, by] of [...Object.entries(CAUGHT_BY), ["check_by_timer", "blocked_loop"]]) {
  test(`${bug} is caught by ${by}`, () => {
    const run = runs(bug, by);
    assert.equal(run.status, 1, run.stdout + run.stderr);
    assert.match(run.stdout, /^caught: /, run.stdout + run.stderr);
    console.log(`planted ${bug}: ${run.stdout.trim().split("\n")[0]}`);
  });
}
