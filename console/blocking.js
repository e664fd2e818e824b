// Finds why a request waits, as a tree: who holds each of its locks, and what those wait for themselves.

import { get, isAnswer, name } from './api.js';

/** The most branches of one node that are followed. Of the others their number is known. */
export const BRANCHES = 8;
/** The most locks below each other, and the most requests for one tree. */
const DEEP = 8;
const READS_MAX = 64;
/** How many places in a queue are read. */
const PLACES = 50;

/**
 * What is in the way of a request, `{ lease, place, locks }`, or of a lock, `{ lock }`, as
 *
 * - a request: `{ lease, place, kind, pool, total, locks }`, of kind `one`, `all`, `any` or `pool`, with the first of its locks;
 * - a lock: `{ lock, holders, more, ahead, moreAhead, first, at }`, and `first` if the request is the first in its queue;
 * - a holder, or a client ahead: `{ client, lease, …, requests }`.
 *
 * A node is `again` if it is elsewhere in the tree, `cut` if a bound ended the search there, and has `refused` if the
 * caller may not see what follows.
 */
export async function treeOf(root, signal, sent, read = get) {
  const tree = root.lock === undefined ? { ...root } : { lock: root.lock };
  const search = new Search((path, params) => read(path, { ...params, stale: true }, signal, sent), root.lease ? [root.lease] : []);
  // Level by level, so that a bound cuts what is far away and not what is near.
  let level = [root.lock === undefined ? () => search.request(tree, 0) : () => search.lock(tree, undefined, 0)];
  while (level.length) level = (await Promise.all(level.map((step) => step()))).flat();
  return tree;
}

export const freeSlots = (lock) => (lock && lock.slots ? Math.max(0, lock.slots - lock.holders.length) : 0);

/** Whether an explained lock has more behind it than its holder. */
export function isDeep({ lock, chain, chain_goes_on: goesOn, ahead }) {
  if (!lock || (freeSlots(lock) && !lock.waiting)) return false;
  if (chain.length > 1 || goesOn) return true;
  return lock.holders.length > 1 || (lock.holders.length === 0 && ahead.length > 0 && isGroup(ahead[0]));
}

/** Who is at the end of the chain of an explained lock, if that is known. */
export function endOf({ lock, chain, chain_goes_on: goesOn }) {
  const single = lock && lock.holders.length === 1 && lock.holders[0].state === 'held';
  return single && !goesOn ? chain[chain.length - 1] : undefined;
}

/** Locks, explained, as far as the caller may see them. */
export async function explainAll(asked, signal, sent) {
  const explain = ({ lock, lease }) => get(`/v1/locks/${name(lock)}`, { view: 'explain', lease, limit: lease ? PLACES : 1, stale: true }, signal, sent);
  const answers = await Promise.all(asked.map((it) => explain(it).catch((error) => {
    if (!isAnswer(error)) throw error;
  })));
  return new Map(asked.map((it, index) => [it.lock, answers[index]]).filter(([, answer]) => answer));
}

/** The most requests for them. */
const WAITERS_READS = 40;

/**
 * The clients in the queues of some locks, in the queues of what these hold, and so on. Not `whole` if a bound or a
 * missing permission ended the search.
 */
export async function waitersOf(locks, client, signal, sent, read = get) {
  const [clients, seen, leases] = [new Set(), new Set(), new Set()];
  let whole = true;
  let reads = WAITERS_READS;
  const ask = async (path, params) => {
    reads -= 1;
    if (reads >= 0) {
      try {
        return await read(path, { ...params, stale: true }, signal, sent);
      } catch (error) {
        if (!isAnswer(error)) throw error;
      }
    }
    whole = false;
    return undefined;
  };
  for (let next = locks; next.length; ) {
    const queues = await Promise.all(next.filter((lock) => !seen.has(lock) && seen.add(lock)).map((lock) => ask(`/v1/locks/${name(lock)}`, { view: 'explain', limit: PLACES })));
    const found = [];
    for (const answer of queues.filter(Boolean)) {
      if (answer.lock && answer.lock.waiting > answer.ahead.length) whole = false;
      for (const it of answer.ahead) {
        if (it.client !== client) clients.add(it.client);
        if (!leases.has(it.lease)) found.push(it.lease);
        leases.add(it.lease);
      }
    }
    const held = await Promise.all(found.map((lease) => ask(`/v1/leases/${name(lease)}`, {})));
    next = held.filter(Boolean).flatMap((lease) => lease.holds.map((hold) => hold.lock));
  }
  return { clients: [...clients], whole };
}

/** Whether a request gets all of several locks or none. */
const isGroup = ({ locks, any, pool }) => locks.length > 1 && !any && !pool;

class Search {
  constructor(read, root) {
    this.reads = READS_MAX;
    this.send = read;
    this.locks = new Set();
    this.leases = new Set(root);
  }

  // What a path answers; the node says why if nothing.
  async read(node, path, params) {
    if (this.reads === 0) {
      node.cut = true;
      return undefined;
    }
    this.reads -= 1;
    try {
      return await this.send(path, params);
    } catch (error) {
      if (!isAnswer(error)) throw error;
      node.refused = error;
      return undefined;
    }
  }

  /** Returns what is to be looked at next. */
  async request(node, depth) {
    const { lease } = node;
    const [first] = node.locks;
    const branch = { lock: first };
    const next = await this.lock(branch, lease, depth);
    const own = branch.own;
    // A pool or a group may have more locks than the lease says that it waits for.
    const locks = own && own.locks.length ? own.locks : node.locks;
    const kind = own && own.pool ? 'pool' : own && own.any ? 'any' : locks.length > 1 ? 'all' : 'one';
    const others = locks.filter((lock) => lock !== first).slice(0, BRANCHES - 1).map((lock) => ({ lock }));
    Object.assign(node, { kind, pool: own && own.pool, total: locks.length, locks: [branch, ...others] });
    return [...next, ...others.map((other) => () => this.lock(other, lease, depth))];
  }

  /** Finds the holders of a lock, and who is ahead of `asker`. */
  async lock(node, asker, depth) {
    if (this.locks.has(node.lock)) {
      node.again = true;
      return [];
    }
    this.locks.add(node.lock);
    if (depth === DEEP) {
      node.cut = true;
      return [];
    }
    const explained = await this.read(node, `/v1/locks/${name(node.lock)}`, { view: 'explain', lease: asker, limit: PLACES });
    if (!explained) return [];
    const { lock, ahead: queue, chain } = explained;
    const at = Date.now();
    const index = queue.findIndex((it) => it.lease === asker);
    const own = explained.own || queue[index];
    const ahead = asker === undefined ? queue.slice(0, 1).filter(isGroup) : index < 0 ? queue : queue.slice(0, index);
    const waiting = own && asker !== undefined ? own.ahead : ahead.length;
    const holders = ((lock && lock.holders) || []).filter((holder) => holder.lease !== asker);
    const shown = holders.slice(0, BRANCHES).map((holder) => ({ ...holder, requests: [] }));
    const before = ahead.slice(0, BRANCHES).map((it) => ({ ...it, requests: [] }));
    Object.assign(node, {
      own,
      at,
      holders: shown,
      more: holders.length - shown.length,
      ahead: before,
      moreAhead: waiting - before.length,
      first: Boolean(own) && waiting === 0,
      slots: lock && lock.slots,
      drained: explained.drained,
      quiet: explained.quiet_ms,
    });
    const held = shown.filter((holder) => holder.state === 'held');
    const groups = before.filter(isGroup);
    return [
      ...held.map((holder) => () => this.holder(holder, chain, depth)),
      ...groups.map((it) => () => this.ahead(it, node.lock, depth)),
    ];
  }

  // What a holder waits for itself.
  async holder(node, chain, depth) {
    if (this.leases.has(node.lease)) {
      node.again = true;
      return [];
    }
    this.leases.add(node.lease);
    const lease = await this.read(node, `/v1/leases/${name(node.lease)}`, {});
    if (!lease) {
      // The member says it of the first holder.
      const told = node.refused && chain.length > 1 && chain[0].lease === node.lease;
      if (!told) return [];
      node.refused = undefined;
      node.requests = [{ lease: node.lease, locks: [chain[1].lock] }];
    } else {
      node.requests = requestsOf(lease);
    }
    node.moreRequests = Math.max(0, node.requests.length - BRANCHES);
    node.requests = node.requests.slice(0, BRANCHES);
    return node.requests.map((request) => () => this.request(request, depth + 1));
  }

  // What a client ahead in a queue waits for besides.
  async ahead(node, lock, depth) {
    const locks = node.locks.filter((it) => it !== lock);
    const kind = locks.length > 1 ? 'all' : 'one';
    node.requests = [{ lease: node.lease, place: node.place, kind, total: locks.length, locks: locks.slice(0, BRANCHES).map((it) => ({ lock: it })) }];
    return node.requests[0].locks.map((branch) => () => this.lock(branch, node.lease, depth + 1));
  }
}

/** The requests of a lease that wait, each with all of its locks. */
export function requestsOf({ lease, waits }) {
  const places = new Map();
  for (const { place, lock } of waits) {
    if (!places.has(place)) places.set(place, { lease, place, locks: [] });
    places.get(place).locks.push(lock);
  }
  return [...places.values()];
}
