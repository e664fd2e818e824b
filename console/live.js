// Keeps what is shown up to date, and knows when it is not.

import { useEffect, useRef, useState } from './vendor/htm-preact.js';
import { get, memberNow, stream } from './api.js';

/** Without a byte for so long a stream counts as broken: the member sends its progress every ten seconds. */
const SILENT_MS = 25_000;
const RETRY_MS = [300, 700, 1500, 3000, 5000];

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
setInterval(() => document.hidden || clock.set(Date.now()), 1000);
export const useNow = () => useStore(clock);

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
function source() {
  const id = (numbered += 1);
  let good = Date.now();
  return {
    good() {
      good = Date.now();
      sources.set(id, { since: good });
      judge();
    },
    bad(why) {
      sources.set(id, { since: good, why });
      judge();
    },
    end() {
      sources.delete(id);
      judge();
    },
  };
}

const words = (error) => `${error.message || error}${error.next ? `: ${error.next}` : ''}`;
/** Whether an error is an answer: a refusal. Nothing is stale because of it, and asking again does not help. */
export const isAnswer = (error) => error.status >= 400 && error.status < 500 && error.status !== 429;

/** After so long without an answer what is shown counts as stale, and the read is given up and tried again. */
const LATE_MS = 3000;
const GIVE_UP_MS = 20_000;

/** How long to wait before something is read again that the member could not answer. */
export const AGAIN_MS = 2000;

/**
 * Reads something now, then every so many milliseconds while the page is visible; without a time, until it has been
 * read. What was read stays until there is something newer, also when the member does not answer.
 */
export function useResource(path, params, every = 0) {
  const key = path && JSON.stringify([path, params]);
  const [state, set] = useState({ key });
  const reload = useRef(() => {});
  useEffect(() => {
    if (!key) return undefined;
    const from = source();
    const aborts = new AbortController();
    let timer;
    let busy = false;
    let again = false;
    const load = async () => {
      if (busy) {
        again = true;
        return;
      }
      busy = true;
      clearTimeout(timer);
      let next = every;
      const late = setTimeout(() => from.bad('this member does not answer'), LATE_MS);
      try {
        const data = await get(path, params, AbortSignal.any([aborts.signal, AbortSignal.timeout(GIVE_UP_MS)]));
        from.good();
        set({ key, data, at: Date.now() });
      } catch (error) {
        if (error.name === 'AbortError') return;
        if (isAnswer(error)) from.good();
        else {
          from.bad(words(error));
          next = Math.min(every || AGAIN_MS, AGAIN_MS);
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
    const tick = () => (document.hidden ? (timer = setTimeout(tick, every || AGAIN_MS)) : load());
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
  }, [key, every]);
  const own = state.key === key ? state : { key };
  return { ...own, reload: () => reload.current() };
}

// The events of a text/event-stream.
async function* events(reader, alive) {
  const decoder = new TextDecoder();
  let text = '';
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    alive();
    text += decoder.decode(value, { stream: true });
    let end;
    while ((end = text.indexOf('\n\n')) >= 0) {
      const event = { type: 'message', data: '' };
      for (const line of text.slice(0, end).split('\n')) {
        const at = line.indexOf(': ');
        const [field, content] = at < 0 ? [line, ''] : [line.slice(0, at), line.slice(at + 2)];
        if (field === 'event') event.type = content;
        else if (field === 'id') event.id = content;
        else if (field === 'data') event.data += content;
      }
      text = text.slice(end + 2);
      yield event;
    }
  }
}

/**
 * Follows a stream until it is closed, and resumes it where it broke. `heard` gets every event with its data; `joined`
 * is called at each beginning, for what may have changed meanwhile; `refused` if the caller may not have the stream.
 * A page that the browser does not show has no streams: it opens few connections to one member in all its tabs.
 */
function follow(path, params, { heard, joined, refused }) {
  const from = source();
  let aborts;
  let timer;
  let closed = false;
  let lastId;
  let attempt = 0;
  let running = 0;
  const run = async () => {
    const mine = (running += 1);
    aborts = new AbortController();
    let watchdog;
    let broke = 'the stream ended';
    let denied = false;
    const alive = () => {
      clearTimeout(watchdog);
      watchdog = setTimeout(() => aborts.abort(), SILENT_MS);
    };
    try {
      alive();
      const reader = await stream(path, params, lastId, aborts.signal);
      from.good();
      attempt = 0;
      if (joined) joined(lastId !== undefined);
      for await (const event of events(reader, alive)) {
        if (event.id) lastId = event.id;
        if (event.type === 'compacted' || event.type === 'slow_consumer') {
          lastId = undefined;
          broke = 'this page fell behind';
        } else if (event.type === 'closing') {
          broke = JSON.parse(event.data).error.message;
        } else {
          from.good();
          heard(event.type, JSON.parse(event.data));
        }
      }
    } catch (error) {
      if (error.reason === 'COMPACTED') lastId = undefined;
      broke = error.name === 'AbortError' ? 'nothing was heard for 25 s' : words(error);
      denied = isAnswer(error) && error.status !== 410;
      if (denied && refused) refused(error);
    }
    clearTimeout(watchdog);
    if (closed || mine !== running) return;
    // Who may not follow is not behind: what is shown comes from elsewhere, or says that it may not be seen.
    if (denied) {
      from.good();
      attempt = RETRY_MS.length;
    } else {
      from.bad(broke);
    }
    timer = setTimeout(run, RETRY_MS[Math.min(attempt, RETRY_MS.length - 1)] * (0.8 + Math.random() * 0.4));
    attempt += 1;
  };
  const stop = () => {
    running += 1;
    clearTimeout(timer);
    if (aborts) aborts.abort();
  };
  const shown = () => {
    stop();
    if (!document.hidden) run();
  };
  document.addEventListener('visibilitychange', shown);
  if (!document.hidden) run();
  return () => {
    closed = true;
    document.removeEventListener('visibilitychange', shown);
    stop();
    from.end();
  };
}

/** The newest value that a stream of whole states sent, and when it came. */
export function useStates(path, params, type) {
  const key = JSON.stringify([path, params, type]);
  const [state, set] = useState({});
  useEffect(
    () =>
      follow(path, params, {
        heard: (heard, data) => heard === type && set({ data, at: Date.now() }),
        refused: (error) => set((before) => ({ ...before, error })),
      }),
    [key],
  );
  return state;
}

/** How soon after a change it is shown, and how often at most if there is always another. */
const SOON_MS = 120;
const CHANGES_MS = 1000;

// Lets the first calls follow each other quickly, and those of something that does not end ever more slowly.
function spacing(first, most) {
  let gap = first;
  let last = 0;
  return {
    wait: () => Math.max(0, last + gap - Date.now()),
    ran() {
      const now = Date.now();
      gap = now - last > 3 * gap ? first : Math.min(2 * gap, most);
      last = now;
    },
  };
}

/** Calls `changed` with the changes of the locks that `params` name: soon, and once in a second while there are more. */
export function useChanges(params, changed) {
  const key = params && JSON.stringify(params);
  const latest = useRef(changed);
  latest.current = changed;
  useEffect(() => {
    if (!key) return undefined;
    let waiting = [];
    let timer;
    const space = spacing(SOON_MS, CHANGES_MS);
    const flush = () => {
      timer = undefined;
      if (document.hidden) {
        // The browser shows another tab. When it shows this one, `shown` reads everything again, so nothing is kept.
        waiting = [];
        return;
      }
      if (waiting.length) space.ran();
      const batch = waiting;
      waiting = [];
      latest.current(batch);
    };
    const note = (events) => {
      waiting.push(...events);
      if (!timer) timer = setTimeout(flush, Math.max(SOON_MS, space.wait()));
    };
    const shown = () => document.hidden || flush();
    document.addEventListener('visibilitychange', shown);
    const close = follow('/v1/watch', params, {
      heard: (type, data) => type === 'change' && note(data.events),
      joined: () => note([]),
    });
    return () => {
      document.removeEventListener('visibilitychange', shown);
      clearTimeout(timer);
      close();
    };
  }, [key]);
}

/** Events carry the wall clock of the leader of their time: so far apart the clocks of members may be. */
const CLOCKS_MS = 600_000;
/** The beginning of a search moves in such steps, so that a search that repeats stays the same. */
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

/** Calls something soon, and if it is wanted all the time, once in so many milliseconds. */
export function useSpaced(call, most) {
  const kept = useRef();
  kept.current ||= { space: spacing(SOON_MS, most) };
  const state = kept.current;
  state.call = call;
  useEffect(() => () => clearTimeout(state.timer), []);
  return () => {
    clearTimeout(state.timer);
    state.timer = setTimeout(() => {
      state.space.ran();
      state.call();
    }, state.space.wait());
  };
}
