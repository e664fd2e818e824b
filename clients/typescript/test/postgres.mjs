// Starts a PostgreSQL of its own for the tests, as a user without rights if the tests run as root.
import { execFileSync, spawn } from "node:child_process";
import { once } from "node:events";
import { chownSync, existsSync, mkdtempSync, readdirSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { freePort } from "./server.mjs";

function programs() {
  const root = "/usr/lib/postgresql";
  const versions = existsSync(root) ? readdirSync(root).map((it) => join(root, it, "bin")) : [];
  const found = versions.filter((it) => existsSync(join(it, "initdb"))).sort().at(-1);
  if (found === undefined) throw new Error("the fence needs PostgreSQL: apt-get install postgresql");
  return found;
}

export async function startPostgres() {
  const bin = programs();
  const directory = mkdtempSync(join(tmpdir(), "tenure-pg-"));
  const user = {};
  if (process.getuid() === 0) {
    const id = (flag) => Number(execFileSync("id", [flag, "postgres"], { encoding: "utf8" }));
    Object.assign(user, { uid: id("-u"), gid: id("-g") });
    chownSync(directory, user.uid, user.gid);
  }
  const data = join(directory, "data");
  const init = ["-D", data, "-U", "postgres", "-A", "trust", "--no-sync"];
  execFileSync(join(bin, "initdb"), init, { ...user, cwd: directory, stdio: "ignore" });
  const port = await freePort();
  const args = ["-D", data, "-p", String(port), "-h", "127.0.0.1", "-k", directory, "-F"];
  const server = spawn(join(bin, "postgres"), args, { ...user, cwd: directory, stdio: ["ignore", "ignore", "pipe"] });
  let log = "";
  await new Promise((resolve, reject) => {
    const timer = setTimeout(() => reject(new Error(`PostgreSQL does not start:\n${log}`)), 60_000);
    server.stderr.on("data", (text) => {
      log += text;
      if (!log.includes("ready to accept connections")) return;
      clearTimeout(timer);
      resolve();
    });
    server.on("exit", (code) => reject(new Error(`PostgreSQL ended with ${code}:\n${log}`)));
  });
  return {
    env: { PGHOST: "127.0.0.1", PGPORT: String(port), PGUSER: "postgres", PGDATABASE: "postgres" },
    async stop() {
      server.kill("SIGQUIT");
      if (server.exitCode === null && server.signalCode === null) await once(server, "exit");
      rmSync(directory, { recursive: true, force: true });
    },
  };
}
