// Starts real members and talks to them as their clients do.

import { spawn } from 'node:child_process';
import { mkdtempSync, rmSync, openSync } from 'node:fs';
import { createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createHash, randomBytes } from 'node:crypto';

export const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

/** Waits until something holds, and says what did not if it takes too long. */
export async function until(what, check, ms = 20_000) {
  const end = Date.now() + ms;
  let last;
  while (Date.now() < end) {
    try {
      const found = await check();
      if (found) return found;
    } catch (error) {
      last = error;
    }
    await sleep(100);
  }
  throw new Error(`${what} did not come about in ${ms} ms${last ? `: ${last.message}` : ''}`);
}

function port() {
  return new Promise((resolve, reject) => {
    const server = createServer();
    server.on('error', reject);
    server.listen(0, '127.0.0.1', () => {
      const { port: found } = server.address();
      server.close(() => resolve(found));
    });
  });
}

export class Cluster {
  constructor(binary) {
    this.binary = binary;
    this.dir = mkdtempSync(join(tmpdir(), 'tenure-console-'));
    this.members = [];
  }

  /** Starts so many members that found a cluster. */
  static async start(binary, size, flags = []) {
    const cluster = new Cluster(binary);
    const names = ['a', 'b', 'c', 'd', 'e'].slice(0, size);
    const places = [];
    for (const name of names) places.push({ name, clients: await port(), peers: await port() });
    const bootstrap = places.map((it) => `${it.name}=127.0.0.1:${it.peers}`).join(',');
    for (const it of places) {
      cluster.members.push({ ...it, flags: ['--bootstrap', bootstrap, ...flags] });
    }
    for (const member of cluster.members) cluster.run(member);
    await cluster.ready();
    return cluster;
  }

  run(member) {
    const log = openSync(join(this.dir, `${member.name}.log`), 'a');
    const args = ['serve', '--name', member.name, '--data', join(this.dir, member.name), '--clients', `127.0.0.1:${member.clients}`, '--members', `127.0.0.1:${member.peers}`, '--health', 'none', ...member.flags];
    member.process = spawn(this.binary, args, { stdio: ['ignore', log, log] });
    member.process.on('exit', (code) => {
      member.exit = code;
    });
  }

  url(member = this.members[0]) {
    return `http://127.0.0.1:${member.clients}`;
  }

  async ready() {
    await until('a leader', async () => (await fetch(`${this.url()}/readyz`)).ok, 30_000);
  }

  async kill(member) {
    member.process.kill('SIGKILL');
    await until('the end of a member', () => member.process.exitCode !== null || member.process.signalCode !== null);
  }

  async leader() {
    const status = await until('a leader', async () => {
      for (const member of this.members) {
        if (member.process.exitCode !== null || member.process.signalCode !== null) continue;
        const answer = await (await fetch(`${this.url(member)}/v1/cluster`)).json();
        if (answer.leader) return answer;
      }
      return undefined;
    });
    return this.members.find((member) => member.name === status.leader.name);
  }

  async stop() {
    for (const member of this.members) member.process.kill('SIGKILL');
    await sleep(50);
    rmSync(this.dir, { recursive: true, force: true });
  }
}

/** A client of one member. */
export class Client {
  constructor(base, key) {
    this.base = base;
    this.key = key;
  }

  /** Sends a request; again while a member says that nothing has happened, as it does between two leaders. */
  async ask(method, path, body, more = {}) {
    for (const end = Date.now() + 10_000; ; await sleep(100)) {
      try {
        return await this.once(method, path, body, more);
      } catch (error) {
        if (error.status !== 503 || error.answer.error.effect !== 'none' || Date.now() > end) throw error;
      }
    }
  }

  async once(method, path, body, more) {
    const headers = { ...more };
    if (body !== undefined) headers['Content-Type'] = 'application/json';
    if (this.key) headers.Authorization = `Bearer ${this.key}`;
    const response = await fetch(this.base + path, { method, headers, body: body === undefined ? undefined : JSON.stringify(body) });
    const text = await response.text();
    const answer = text ? JSON.parse(text) : {};
    if (!response.ok && response.status !== 202) {
      throw Object.assign(new Error(`${method} ${path}: ${answer.error ? answer.error.message : text}`), { status: response.status, answer });
    }
    return answer;
  }

  async lease(client, ttl_ms = 600_000, metadata) {
    return (await this.ask('POST', '/v1/leases', { ttl_ms, client, metadata })).lease;
  }

  async acquire(lock, lease, more = {}) {
    return this.ask('POST', `/v1/locks/${encodeURIComponent(lock)}`, { lease, ...more });
  }

  async queue(lock, lease, more = {}) {
    return this.ask('POST', `/v1/locks/${encodeURIComponent(lock)}?keep=true`, { lease, ...more });
  }

  async release(lock, lease, token) {
    return this.ask('DELETE', `/v1/locks/${encodeURIComponent(lock)}?lease=${lease}&token=${token}`);
  }

  /** Gives a principal a role, its rules and an API key; returns the key. */
  async principal(name, rules) {
    await this.ask('PUT', `/v1/access/roles/${name}`, { rules });
    await this.ask('PUT', `/v1/access/principals/${name}`, { roles: [name] });
    const id = randomBytes(8).toString('hex');
    const secret = randomBytes(32).toString('hex');
    const hash = createHash('sha256').update(secret).digest('hex');
    await this.ask('PUT', `/v1/access/keys/${id}`, { principal: name, hash, name: 'test' });
    return { id, text: `tenure_${id}_${secret}` };
  }
}
