// Rebuilds who waited for whom when a request was refused as a deadlock.
//
// The event of a refusal names the client and the locks that it asked for; the others of the ring are found in the past of
// those, as far as the caller may read it.

import { get, isAnswer, name } from './api.js';

/** The most steps of a ring, and the most searches for one. */
const STEPS_MAX = 12;
const SEARCHES_MAX = 32;
/** How many revisions of a lock or client are read. */
const REVISIONS = 300;

const WAIT_ENDS = new Set(['granted', 'upgraded', 'granted_elsewhere', 'left', 'wait_timeout', 'superseded', 'too_many_slots', 'expired', 'revoked']);
const HOLD_ENDS = new Set(['released', 'expired', 'revoked', 'forced', 'max_hold', 'no_progress', 'handed_on']);

const inOrder = (changes) => [...changes].sort((one, other) => (BigInt(one.revision) < BigInt(other.revision) ? -1 : 1)).flatMap((change) => change.events);

/** Who held a lock after some changes, then who waited for it, in order. */
export function blockers(lock, changes) {
  const held = new Map();
  const waits = new Map();
  for (const event of inOrder(changes)) {
    if (event.lock !== lock || !event.lease) continue;
    if (event.cause === 'queued') waits.set(event.lease, event);
    else if (WAIT_ENDS.has(event.cause)) waits.delete(event.lease);
    if (event.cause === 'granted') held.set(event.token, event);
    else if (event.cause === 'upgraded' || event.cause === 'downgraded') {
      // The same hold goes on under another token.
      for (const [token, hold] of held) if (hold.lease === event.lease) held.delete(token);
      held.set(event.token, event);
    } else if (HOLD_ENDS.has(event.cause)) held.delete(event.token);
  }
  const named = (events, holds) => [...events.values()].map(({ lease, client }) => ({ lease, client, holds }));
  return [...named(held, true), ...named(waits, false)];
}

/** The locks that a lease waited for after some changes. */
export function awaited(lease, changes) {
  const waits = new Set();
  for (const event of inOrder(changes)) {
    if (event.lease !== lease || !event.lock) continue;
    if (event.cause === 'queued') waits.add(event.lock);
    else if (WAIT_ENDS.has(event.cause)) waits.delete(event.lock);
  }
  return [...waits];
}

/**
 * Walks from the request to what was in its way, until it comes back. Returns `{ links, closed }`; each link has a client,
 * the lock that it waited for, and `by`: who was in the way. A ring of holders is preferred.
 */
async function walk(change, read) {
  const { lease: first, client } = change.events[0];
  let longest = [];
  const from = async (links, seen, ofHolders) => {
    if (links.length > longest.length) longest = links;
    const last = links[links.length - 1];
    if (links.length > STEPS_MAX) return undefined;
    const all = blockers(last.lock, await read(`/v1/locks/${name(last.lock)}`, { view: 'history', archive: true }));
    const ahead = all.filter((it) => it.lease !== last.lease && (it.holds || !ofHolders));
    const before = links.slice(0, -1);
    const closing = links.length > 1 && ahead.find((it) => it.lease === first);
    if (closing) return [...before, { ...last, by: closing }];
    for (const it of ahead) {
      if (seen.has(it.lease) || !it.client) continue;
      seen.add(it.lease);
      for (const next of awaited(it.lease, await read('/v1/history', { client: it.client }))) {
        const ring = await from([...before, { ...last, by: it }, { lease: it.lease, client: it.client, lock: next }], seen, ofHolders);
        if (ring) return ring;
      }
    }
    return undefined;
  };
  for (const ofHolders of [true, false]) {
    for (const { lock } of change.events) {
      const ring = await from([{ lease: first, client, lock }], new Set([first]), ofHolders);
      if (ring) return { links: ring, closed: true };
    }
  }
  return { links: longest, closed: false };
}

const known = new Map();

/** The ring of a refusal. It never changes, so it is looked for once. */
export function ringOf(change) {
  const { revision } = change;
  if (!known.has(revision)) {
    const found = new Map();
    const read = async (path, params) => {
      const key = JSON.stringify([path, params]);
      if (!found.has(key) && found.size < SEARCHES_MAX) found.set(key, (await get(path, { ...params, before: revision, limit: REVISIONS })).changes);
      return found.get(key) || [];
    };
    known.set(revision, walk(change, read).catch((error) => {
      known.delete(revision);
      if (isAnswer(error)) return { error };
      throw error;
    }));
  }
  return known.get(revision);
}
