// Makes an empty project with the packed package in it, as a new user would, and runs programs there.
import { execFileSync, spawnSync } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { packageDirectory } from "./places.mjs";

const require = createRequire(import.meta.url);
export const tsc = join(dirname(require.resolve("typescript/package.json")), "bin/tsc");

/** Packs what is built, and installs it into an empty project, with further packages. */
export function emptyProject(...more) {
  const directory = mkdtempSync(join(tmpdir(), "tenure-project-"));
  const npm = (cwd, ...args) => execFileSync("npm", [...args, "--loglevel=error"], { cwd, encoding: "utf8" });
  const packed = npm(packageDirectory, "pack", "--ignore-scripts", "--json", "--pack-destination", directory);
  const { filename, files } = JSON.parse(packed)[0];
  writeFileSync(join(directory, "package.json"), '{ "name": "empty", "private": true }\n');
  npm(directory, "install", "--no-audit", "--no-fund", "--prefer-offline", join(directory, filename), ...more);
  return {
    directory,
    archive: join(directory, filename),
    files: files.map((it) => it.path),
    write: (name, text) => writeFileSync(join(directory, name), text),
    /** Runs a program of the project, and returns what it printed. */
    run(env, program, ...args) {
      const run = spawnSync(program, args, {
        cwd: directory,
        encoding: "utf8",
        timeout: 60_000,
        env: { ...process.env, ...env },
      });
      if (run.status !== 0) throw new Error(`${program} ${args.join(" ")} ended with ${run.status}:\n${run.stdout}${run.stderr}`);
      return run.stdout;
    },
    remove: () => rmSync(directory, { recursive: true, force: true }),
  };
}

/** The code blocks of a document. */
export function codeBlocks(document) {
  const text = readFileSync(join(packageDirectory, document), "utf8");
  return [...text.matchAll(/```(?:js|ts)\n([\s\S]*?)```/g)].map(([, code]) => code);
}

/** The code block of a document whose first line is a comment with this name. */
export function codeBlock(document, name) {
  const found = codeBlocks(document).find((code) => code.startsWith(`// ${name}\n`));
  if (found === undefined) throw new Error(`${document} has no block ${name}`);
  return found;
}
