// Keeps what is shown up to date, and knows when it is not.

import { useEffect, useRef, useState } from './vendor/htm-preact.js';
import { get, isAnswer, memberNow } from './api.js';

/** A value that components follow. */
export function store(value) {
  const followers = new Set();
  return {
    get: () => value,
    set(next) {
      value = next;
      followers.forEach((follower) => follower(value));
    },
    follow(follower) {
      followers.add(follower);
      return () => followers.delete(follower);
    },
  };
}

export function useStore(from) {
  const [value, set] = useState(from.get());
  useEffect(() => {
    set(from.get());
    return from.follow(set);
  }, [from]);
  return value;
}

/** The present time, once per second, while the page is visible. */
const clock = store(Date.now());
/** The same, but it stops while what was read may be out of date. */
const known = store(Date.now());
setInterval(() => {
  if (document.hidden) return;
  clock.set(Date.now());
  if (freshness.get().live) known.set(Date.now());
}, 1000);
export const useNow = () => useStore(clock);
export const useKnownNow = () => useStore(known);

// Every source of what is shown, with when it last was good and why it is not.
const sources = new Map();
export const freshness = store({ live: true });

function judge() {
  let worst = { live: true };
  for (const source of sources.values()) {
    if (source.why && (worst.live || source.since < worst.since)) {
      worst = { live: false, since: source.since, why: source.why };
    }
  }
  const before = freshness.get();
  if (before.live !== worst.live || before.why !== worst.why || before.since !== worst.since) freshness.set(worst);
}

let numbered = 0;
/** One source of what is shown, until its `end`. */
export function source() {
  const id = (numbered += 1);
  let good = Date.now();
  let ended = false;
  const report = (why) => {
    if (ended) return;
    sources.set(id, { since: good, why });
    judge();
  };
  return {
    good() {
      good = Date.now();
      report();
    },
    bad: report,
    end() {
      ended = true;
      sources.delete(id);
      judge();
    },
  };
}

export const words = (error) => `${error.message || error}${error.next ? `: ${error.next}` : ''}`;

/** After so long without an answer what is shown counts as stale. */
const LATE_MS = 3000;

/** How long to wait before something is read again that the member could not answer. */
export const AGAIN_MS = 2000;

/**
 * Reads something now, then every so many milliseconds while the page is visible; without a time, until it has been
 * read. What was read stays until there is something newer, also when the member does not answer.
 */
export function useResource(path, params, every = 0) {
  const key = path && JSON.stringify([path, params]);
  return useRead(key, (signal, sent) => get(path, params, signal, sent), every);
}

/**
 * The same for what takes several requests: `read` gets a signal, and what to call when a request leaves. `every` may be
 * a function of what was read, if anything was.
 */
export function useRead(key, read, every = 0) {
  const latest = useRef();
  latest.current = { read, every };
  const [state, set] = useState({ key });
  const reload = useRef(() => {});
  useEffect(() => {
    if (!key) return undefined;
    const from = source();
    const aborts = new AbortController();
    let timer;
    let busy = false;
    let again = false;
    const wait = (data) => (typeof latest.current.every === 'function' ? latest.current.every(data) : latest.current.every);
    const load = async () => {
      if (busy) {
        again = true;
        return;
      }
      busy = true;
      clearTimeout(timer);
      let next = wait();
      let late;
      // A read that waits for another one says nothing.
      const sent = () => {
        clearTimeout(late);
        late = setTimeout(() => from.bad('this member does not answer'), LATE_MS);
      };
      try {
        const data = await latest.current.read(aborts.signal, sent);
        from.good();
        set({ key, data, at: Date.now() });
        next = wait(data);
      } catch (error) {
        if (aborts.signal.aborted) return;
        if (isAnswer(error)) from.good();
        else {
          from.bad(words(error));
          next = Math.min(next || AGAIN_MS, AGAIN_MS);
        }
        set((before) => ({ ...(before.key === key ? before : { key }), error, failedAt: Date.now() }));
      } finally {
        clearTimeout(late);
      }
      busy = false;
      if (again) {
        again = false;
        load();
      } else if (next) {
        timer = setTimeout(tick, next);
      }
    };
    const tick = () => (document.hidden ? (timer = setTimeout(tick, wait() || AGAIN_MS)) : load());
    const shown = () => document.hidden || load();
    document.addEventListener('visibilitychange', shown);
    reload.current = load;
    load();
    return () => {
      document.removeEventListener('visibilitychange', shown);
      clearTimeout(timer);
      aborts.abort();
      from.end();
    };
  }, [key]);
  const own = state.key === key ? state : { key };
  return { ...own, reload: () => reload.current() };
}

/** So far apart the clocks of members may be. */
const CLOCKS_MS = 600_000;
/** The beginning of a repeated search moves in such steps. */
const STEP_MS = 300_000;

/**
 * The newest changes of the past that match, and those that come, read every so many milliseconds. Only the first
 * search goes back: a search that finds nothing reads as much of the archive as a member allows. If there may be more
 * before what was read, `further` reads the next part.
 */
export function useHistory(params, every, most = 100) {
  const key = JSON.stringify(params);
  const known = useRef({});
  const [, redraw] = useState(0);
  if (known.current.key !== key) known.current = { key, changes: new Map(), most };
  const mine = known.current;
  const found = useResource('/v1/history', { ...params, since: params.since || mine.since, limit: most }, every);
  const add = (read) => {
    for (const change of read) mine.changes.set(change.revision, change);
    const changes = [...mine.changes.values()].sort((one, other) => (BigInt(one.revision) < BigInt(other.revision) ? 1 : -1)).slice(0, mine.most);
    mine.changes = new Map(changes.map((change) => [change.revision, change]));
    mine.shown = { ...mine.data, changes };
  };
  if (found.data && mine.data !== found.data) {
    if (!mine.data) mine.before = found.data.before;
    mine.data = found.data;
    add(found.data.changes);
    mine.since = new Date(Math.floor((memberNow() - CLOCKS_MS) / STEP_MS) * STEP_MS).toISOString();
  }
  const further = async () => {
    if (mine.reading) return;
    mine.reading = true;
    redraw((n) => n + 1);
    try {
      const older = await get('/v1/history', { ...params, before: mine.before, limit: most });
      mine.most += most;
      mine.before = older.before;
      mine.problem = undefined;
      add(older.changes);
    } catch (error) {
      mine.problem = error;
    }
    mine.reading = false;
    if (known.current === mine) redraw((n) => n + 1);
  };
  return { ...found, error: found.error || mine.problem, data: mine.shown, further: mine.before && further, reading: mine.reading };
}
