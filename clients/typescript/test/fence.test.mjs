// Tests the guide of the single writer: the token in the transaction, and a late writer that the database refuses.
import test, { after, before } from "node:test";
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import pg from "pg";
import { Client } from "../dist/esm/index.js";
import { packageDirectory } from "./places.mjs";
import { startPostgres } from "./postgres.mjs";
import { codeBlock, emptyProject } from "./project.mjs";
import { startServer } from "./server.mjs";

let server;
let postgres;
let project;
let db;
before(async () => {
  server = await startServer();
  postgres = await startPostgres();
  project = emptyProject("pg");
  db = new pg.Client({ host: postgres.env.PGHOST, port: Number(postgres.env.PGPORT), user: "postgres", database: "postgres" });
  await db.connect();
  await db.query(readFileSync(join(packageDirectory, "../../crates/fence/src/postgres.sql"), "utf8"));
  await db.query("create table ledger (id bigint primary key, paid_by text)");
  await db.query("insert into ledger values (7)");
  await db.query("select tenure_fence.protect('ledger', 'ledger')");
});
after(async () => {
  await db?.end();
  project?.remove();
  await postgres?.stop();
  await server?.stop();
});

test("the program of docs/single-writer.md writes under the lock, and an older token is refused", async () => {
  project.write("pay.mjs", codeBlock("docs/single-writer.md", "pay.mjs"));
  const client = await Client.connect({ addresses: server.address });
  const early = await client.run("ledger", (guard) => guard.token);
  project.run({ TENURE_ADDR: server.address, ...postgres.env }, "node", "pay.mjs");
  assert.equal((await db.query("select paid_by from ledger")).rows[0].paid_by, "ana");
  await db.query("begin");
  const late = db.query("select tenure_fence.pass($1, $2)", ["ledger", String(early)]);
  await assert.rejects(late, (error) => error.code === "TF412");
  await db.query("rollback");
  await assert.rejects(db.query("update ledger set paid_by = 'past the fence'"), (error) => error.code === "TF428");
  await client.close();
});

test("the program of docs/single-writer.md that reads first has raised the fence before it reads", async () => {
  project.write("audit.mjs", codeBlock("docs/single-writer.md", "audit.mjs"));
  const client = await Client.connect({ addresses: server.address });
  const early = await client.run("ledger", (guard) => guard.token);
  const [token, paidBy] = project.run({ TENURE_ADDR: server.address, ...postgres.env }, "node", "audit.mjs").trim().split(" ");
  assert.ok(BigInt(token) > early && paidBy === "ana");
  const { rows } = await db.query("select exclusive from tenure_fence.floor where lock = 'ledger'");
  assert.equal(rows[0].exclusive, token, "the program has written nothing, and its token is the highest seen");
  await assert.rejects(db.query("select tenure_fence.pass($1, $2)", ["ledger", String(early)]), (error) => error.code === "TF412");
  await client.close();
});
