// Tests that the reference is the one that the code prints.
import test from "node:test";
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { createRequire } from "node:module";
import { mkdtempSync, readdirSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { packageDirectory } from "./places.mjs";

const typedoc = join(dirname(createRequire(import.meta.url).resolve("typedoc/package.json")), "bin/typedoc");

test("docs/reference is up to date: npm run reference", () => {
  const directory = mkdtempSync(join(tmpdir(), "tenure-reference-"));
  try {
    execFileSync(process.execPath, [typedoc, "--out", directory], { cwd: packageDirectory, stdio: "ignore" });
    const committed = join(packageDirectory, "docs/reference");
    assert.deepEqual(readdirSync(committed).sort(), readdirSync(directory).sort());
    for (const name of readdirSync(directory)) {
      assert.equal(readFileSync(join(committed, name), "utf8"), readFileSync(join(directory, name), "utf8"), name);
    }
  } finally {
    rmSync(directory, { recursive: true, force: true });
  }
});
