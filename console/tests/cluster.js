// Starts real members and talks to them as their clients do.

import { spawn } from 'node:child_process';
import { closeSync, mkdtempSync, openSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createHash, randomBytes } from 'node:crypto';
import { freePort } from './ports.js';

/** How long anything may take on a machine that has much else to do. What takes longer does not come about. */
export const PATIENCE_MS = 120_000;

export const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

/** Waits until something holds, and says what did not if it takes too long. */
export async function until(what, check) {
  const end = Date.now() + PATIENCE_MS;
  let last;
  while (Date.now() < end) {
    try {
      const found = await check();
      if (found) return found;
    } catch (error) {
      if (error.fatal) throw error;
      last = error;
    }
    await sleep(100);
  }
  throw new Error(`${what} did not come about in ${PATIENCE_MS} ms${last ? `: ${last.message}` : ''}`);
}

// Members and their data never outlive the tests, however those end.
const running = new Set();
const directories = new Set();
process.on('exit', () => {
  running.forEach((child) => child.kill('SIGKILL'));
  for (const dir of directories) rmSync(dir, { recursive: true, force: true, maxRetries: 5 });
});

/** A directory that does not outlive the tests. */
export function temporary() {
  const dir = mkdtempSync(join(tmpdir(), 'tenure-console-'));
  directories.add(dir);
  return dir;
}

export class Cluster {
  constructor(binary) {
    this.binary = binary;
    this.dir = temporary();
    this.fetch = fetch;
    this.scheme = 'http';
    this.members = [];
    this.commands = [];
  }

  /**
   * Starts so many members that found a cluster, and waits until each of them is ready. With `tls` they have the
   * certificates that its `flags` give for a member's name, and are asked with its `fetch`.
   */
  static async start(binary, size, flags = [], tls) {
    const cluster = new Cluster(binary);
    if (tls) Object.assign(cluster, { scheme: 'https', fetch: tls.fetch });
    const names = ['a', 'b', 'c', 'd', 'e'].slice(0, size);
    const places = [];
    for (const name of names) places.push({ name, clients: await freePort(), peers: await freePort() });
    const bootstrap = places.map((it) => `${it.name}=127.0.0.1:${it.peers}`).join(',');
    for (const it of places) {
      cluster.members.push({ ...it, flags: ['--bootstrap', bootstrap, ...flags, ...(tls ? tls.flags(it.name) : [])] });
    }
    try {
      for (const member of cluster.members) cluster.run(member);
      for (const member of cluster.members) await cluster.ready(member);
    } catch (error) {
      await cluster.stop();
      throw error;
    }
    return cluster;
  }

  /** Starts a member that joins with an invitation. */
  async join(name, invitation) {
    const member = { name, clients: await freePort(), peers: await freePort() };
    member.flags = ['--join', `127.0.0.1:${this.members[0].peers}`, '--invitation', invitation];
    this.members.push(member);
    this.run(member);
    return member;
  }

  run(member) {
    const log = openSync(this.log(member), 'a');
    const args = ['serve', '--name', member.name, '--data', join(this.dir, member.name), '--clients', `127.0.0.1:${member.clients}`, '--members', `127.0.0.1:${member.peers}`, '--health', 'none', ...member.flags];
    const child = spawn(this.binary, args, { stdio: ['ignore', log, log] });
    closeSync(log);
    member.process = child;
    running.add(child);
    member.ended = new Promise((resolve) => {
      child.on('error', resolve);
      child.on('exit', resolve);
    }).then(() => running.delete(child));
  }

  log(member) {
    return join(this.dir, `${member.name}.log`);
  }

  /** The last lines of what each member wrote. */
  words() {
    const last = (member) => readFileSync(this.log(member), 'utf8').trimEnd().split('\n').slice(-12).join('\n');
    return this.members.map((member) => `-- ${member.name}${running.has(member.process) ? '' : ', which has ended'}:\n${last(member)}`).join('\n');
  }

  url(member = this.members[0]) {
    return `${this.scheme}://127.0.0.1:${member.clients}`;
  }

  async ready(member) {
    await until(`a leader at ${member.name}`, async () => {
      if (!running.has(member.process)) throw Object.assign(new Error('the member ended'), { fatal: true });
      return (await this.fetch(`${this.url(member)}/readyz`)).ok;
    }).catch((error) => {
      throw new Error(`member ${member.name} did not become ready: ${error.message}\n${this.words()}`);
    });
  }

  /** A client with the key of a member's local administrator. */
  administrator(member = this.members[0]) {
    const key = readFileSync(join(this.dir, member.name, 'admin.key'), 'utf8').trim();
    return new Client(this.url(member), key, this.fetch);
  }

  async kill(member) {
    member.process.kill('SIGKILL');
    await member.ended;
  }

  async leader() {
    const status = await until('a leader', async () => {
      for (const member of this.members) {
        if (!running.has(member.process)) continue;
        const answer = await (await this.fetch(`${this.url(member)}/v1/cluster`)).json();
        if (answer.leader) return answer;
      }
      return undefined;
    });
    return this.members.find((member) => member.name === status.leader.name);
  }

  /** Starts a command of this binary that uses the cluster. It ends with the tests at the latest. */
  command(...words) {
    const addresses = this.members.map((member) => `127.0.0.1:${member.clients}`).join(',');
    const child = spawn(this.binary, words, { stdio: 'ignore', env: { ...process.env, TENURE_ADDR: addresses } });
    running.add(child);
    child.on('exit', () => running.delete(child));
    this.commands.push(child);
    return child;
  }

  async stop() {
    for (const child of this.commands) child.kill('SIGKILL');
    for (const member of this.members) if (member.process) await this.kill(member);
    rmSync(this.dir, { recursive: true, force: true });
    directories.delete(this.dir);
  }
}

// Whether a failed request may be sent again: it has its key, so the cluster does it once.
function isPassing(error) {
  const { answer } = error;
  return !answer || [429, 503, 504].includes(error.status) || Boolean(answer.error && answer.error.effect === 'unknown');
}

/** A client of one member. */
export class Client {
  constructor(base, key, fetcher = fetch) {
    this.base = base;
    this.key = key;
    this.fetch = fetcher;
  }

  /** Sends a request, again while the member has too much to do or no leader, or if its outcome is not known. */
  async ask(method, path, body, more = {}) {
    const headers = { ...more };
    if (method !== 'GET') headers['Idempotency-Key'] = randomBytes(16).toString('hex');
    for (const end = Date.now() + PATIENCE_MS; ; await sleep(100)) {
      try {
        return await this.once(method, path, body, headers);
      } catch (error) {
        if (!isPassing(error) || Date.now() > end) throw error;
      }
    }
  }

  async once(method, path, body, more) {
    const headers = { ...more };
    const isText = typeof body === 'string';
    if (body !== undefined && !isText) headers['Content-Type'] = 'application/json';
    if (this.key) headers.Authorization = `Bearer ${this.key}`;
    const response = await this.fetch(this.base + path, { method, headers, body: body === undefined || isText ? body : JSON.stringify(body) });
    const text = await response.text();
    const answer = text ? JSON.parse(text) : {};
    if (!response.ok && response.status !== 202) {
      throw Object.assign(new Error(`${method} ${path}: ${answer.error ? answer.error.message : text}`), { status: response.status, answer });
    }
    return answer;
  }

  async lease(client, ttl_ms = 3_600_000, metadata) {
    return (await this.ask('POST', '/v1/leases', { ttl_ms, client, metadata })).lease;
  }

  async acquire(lock, lease, more = {}) {
    return this.ask('POST', `/v1/locks/${encodeURIComponent(lock)}`, { lease, ...more });
  }

  /** Acquires with a lease that begins with the hold, so that however short it is, it cannot end before. */
  async acquireFor(lock, client, ttl_ms) {
    return this.ask('POST', `/v1/locks/${encodeURIComponent(lock)}`, { new_lease: { ttl_ms, client } });
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
