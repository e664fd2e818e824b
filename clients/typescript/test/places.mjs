// Says where the tests find the vectors and the server's binary.
import { existsSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";

export const packageDirectory = dirname(dirname(fileURLToPath(import.meta.url)));
const repository = dirname(dirname(packageDirectory));

export const vectorsDirectory = process.env.TENURE_VECTORS ?? join(repository, "clients/vectors");

/** The server under test: `TENURE_BIN`, else the newest build in the repository. */
export const tenure =
  process.env.TENURE_BIN ??
  ["release", "debug"].map((it) => join(repository, "target", it, "tenure")).find((it) => existsSync(it)) ??
  "tenure";
