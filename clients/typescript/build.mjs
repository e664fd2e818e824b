// Builds the package: the same sources once as ES modules and once as CommonJS, each with its types.
import { execFileSync } from "node:child_process";
import { createRequire } from "node:module";
import { mkdirSync, rmSync, writeFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { dirname, join } from "node:path";

const here = dirname(fileURLToPath(import.meta.url));
const tsc = join(dirname(createRequire(import.meta.url).resolve("typescript/package.json")), "bin/tsc");
const dist = join(here, "dist");

rmSync(dist, { recursive: true, force: true });
const run = (...args) => execFileSync(process.execPath, [tsc, ...args], { cwd: here, stdio: "inherit" });
run("-p", "tsconfig.json");
run("-p", "tsconfig.cjs.json");
// The nearest package.json decides how Node reads a `.js` file.
mkdirSync(join(dist, "cjs"), { recursive: true });
writeFileSync(join(dist, "cjs/package.json"), '{ "type": "commonjs" }\n');
writeFileSync(join(dist, "esm/package.json"), '{ "type": "module" }\n');
