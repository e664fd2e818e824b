// Follows the member's streams of events, resumes them where they broke, and spaces what is read because of them.

import { useEffect, useRef, useState } from './vendor/htm-preact.js';
import { isAnswer, stream } from './api.js';
import { source, words } from './live.js';

/** Without a byte for so long a stream is broken: progress comes every ten seconds. */
const SILENT_MS = 25_000;
const RETRY_MS = [300, 700, 1500, 3000, 5000];

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
 * Follows a stream until it is closed, and resumes it where it broke. `joined` is called at each beginning, `refused` if
 * the caller may not have it. A page that the browser does not show has no streams.
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
    // Who may not follow is not behind.
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

// Calls that do not end come ever more slowly.
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

/** Calls `changed` with the changes of some locks: soon, then once a second. */
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
        // Another tab is shown; `shown` reads everything again.
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
