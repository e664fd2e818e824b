// Tests the package as a new user meets it: packed, installed into an empty project, imported in both forms, typed, and
// the examples of its documents run.
import test, { after, before } from "node:test";
import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { createRequire } from "node:module";
import { readFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { packageDirectory } from "./places.mjs";
import { codeBlock, codeBlocks, emptyProject, tsc } from "./project.mjs";
import { startServer } from "./server.mjs";

const require = createRequire(import.meta.url);
let server;
let project;
let env;
before(async () => {
  server = await startServer();
  env = { TENURE_ADDR: server.address };
  project = emptyProject();
});
after(async () => {
  project?.remove();
  await server?.stop();
});

test("the package has both builds, their types and the documents, and brings one dependency", () => {
  for (const file of ["dist/esm/index.js", "dist/esm/index.d.ts", "dist/cjs/index.js", "dist/cjs/redlock.d.ts", "README.md", "docs/cron.md"]) {
    assert.ok(project.files.includes(file), file);
  }
  assert.ok(!project.files.some((it) => it.startsWith("test/") || it.startsWith("src/") || it.includes("plants")));
  const lock = JSON.parse(readFileSync(join(project.directory, "package-lock.json"), "utf8"));
  assert.deepEqual(Object.keys(lock.packages).filter((it) => it).sort(), ["node_modules/@tenure/client", "node_modules/ws"]);
});

test("the lock file names no registry", () => {
  const { packages } = JSON.parse(readFileSync(join(packageDirectory, "package-lock.json"), "utf8"));
  assert.deepEqual(Object.values(packages).filter((it) => "resolved" in it), []);
});

test("it is imported and required, and both have the same names", () => {
  project.write("a.mjs", 'import * as all from "@tenure/client"; import * as r from "@tenure/client/redlock"; console.log(Object.keys(all).sort().join(), Object.keys(r).sort().join());');
  project.write("a.cjs", 'const all = require("@tenure/client"); const r = require("@tenure/client/redlock"); console.log(Object.keys(all).sort().join(), Object.keys(r).filter((it) => it !== "__esModule").sort().join());');
  const imported = project.run(env, "node", "a.mjs");
  assert.equal(project.run(env, "node", "a.cjs"), imported);
  assert.match(imported, /Client,.*Guard,.*Lost,.*Refused/);
});

test("CommonJS takes a lock", () => {
  project.write("lock.cjs", `
    const { Client } = require("@tenure/client");
    (async () => {
      const client = await Client.fromEnv();
      console.log(await client.run("cjs", async (guard) => typeof guard.token));
      await client.close();
    })();`);
  assert.equal(project.run(env, "node", "lock.cjs"), "bigint\n");
});

test("the first example of the README runs", () => {
  project.write("first.mjs", codeBlock("README.md", "first.mjs"));
  const began = performance.now();
  const printed = project.run(env, "node", "first.mjs");
  assert.match(printed, /^holding deploy under token \d+\n7 rows\n$/);
  console.log(`readme first example ${Math.round(performance.now() - began)} ms`);
});

const types = ["--typeRoots", join(packageDirectory, "node_modules/@types"), "--types", "node"];
const options = ["--strict", "--target", "ES2022", "--module", "NodeNext", "--lib", "ES2022,ESNext.Disposable", ...types];

test("every other call in the README compiles, strictly", () => {
  const blocks = codeBlocks("README.md").filter((code) => !code.startsWith("// "));
  assert.ok(blocks.length >= 4, `${blocks.length} blocks`);
  const names = `import { Client, type Guard, type HeldLock } from "@tenure/client";
    declare const signal: AbortSignal, successor: string;
    declare function raise(lock: HeldLock): Promise<void>;
    declare function route(leader: string | undefined): void;
    declare function show(revision: bigint, events: readonly object[]): void;\n`;
  const bodies = blocks.map((code, i) => {
    const given = [["client", "Client"], ["guard", "Guard"]].filter(([name]) => !code.includes(`const ${name} =`));
    return `export async function block${i}(${given.map((it) => it.join(": ")).join(", ")}) {\n${code}}\n`;
  });
  project.write("calls.mts", names + bodies.join(""));
  project.run(env, process.execPath, tsc, "--noEmit", ...options, "calls.mts");
});

test("the example with `await using` compiles in both module forms, strictly, and runs", () => {
  project.write("using.mts", codeBlock("README.md", "using.ts"));
  project.write("using.cts", codeBlock("README.md", "using.ts").replace(/^await using client[\s\S]*?^}/m, (body) => `async function main() {\n${body}\n}\nvoid main();`));
  project.run(env, process.execPath, tsc, ...options, "using.mts", "using.cts");
  project.run(env, "node", "using.mjs");
  project.run(env, "node", "using.cjs");
});

test("the types fit the files, as arethetypeswrong sees them", () => {
  const attw = join(dirname(require.resolve("@arethetypeswrong/cli/package.json")), "dist/index.js");
  const run = spawnSync(process.execPath, [attw, project.archive, "--no-emoji"], { encoding: "utf8", timeout: 120_000 });
  assert.equal(run.status, 0, run.stdout + run.stderr);
});

for (const [guide, name, prints] of [
  ["docs/cron.md", "cron.mjs", /reporting/],
  ["docs/migrations.md", "migrate.mjs", /migrating under token \d+/],
  ["docs/redlock.md", "redlock.mjs", /token \d+/],
]) {
  test(`the program of ${guide} runs`, () => {
    project.write(name, codeBlock(guide, name));
    assert.match(project.run(env, "node", name), prints);
  });
}

test("a second run of the cron job on the same day finds it done", () => {
  assert.match(project.run(env, "node", "cron.mjs"), /done before/);
});
