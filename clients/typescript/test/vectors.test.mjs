// Replays every trace of the lease life that the Rust client prints, and compares each output.
import test from "node:test";
import assert from "node:assert/strict";
import { readFileSync, readdirSync } from "node:fs";
import { join } from "node:path";
import { plant } from "../plants.mjs";
import { vectorsDirectory } from "./places.mjs";
import { replay } from "./vectors.mjs";

// `cargo xtask clients --planted` expects that a trace differs then.
if (process.env.TENURE_PLANT) plant(process.env.TENURE_PLANT);

const traces = readdirSync(vectorsDirectory)
  .filter((name) => name.endsWith(".jsonl"))
  .sort()
  .flatMap((name) => readFileSync(join(vectorsDirectory, name), "utf8").trim().split("\n"))
  .map((line) => JSON.parse(line));

test("there are at least 500 traces", () => {
  assert.ok(traces.length >= 500, `${traces.length} traces`);
});

test("every trace is replayed exactly", () => {
  const failed = [];
  for (const trace of traces) {
    try {
      replay(trace);
    } catch (error) {
      failed.push(error);
    }
  }
  console.log(`vectors traces=${traces.length} failed=${failed.length}`);
  if (failed.length > 0) throw failed[0];
});
