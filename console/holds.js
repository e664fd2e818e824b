// Turns the events of the past into holds and hand-overs.

import { content, LOSSES } from './format.js';

const GIVEN_BACK = new Set(['released', 'handed_on']);
const ENDS = new Set([...GIVEN_BACK, ...LOSSES]);

/** Whether a hold must have ended when something of its lock is granted. */
function excludes(hold, event) {
  if (hold.lock !== event.lock) return false;
  if (event.slot != null || hold.slot != null) return event.slot === hold.slot;
  return event.mode === 'exclusive' || hold.mode === 'exclusive';
}

/**
 * The holds in some changes, oldest first. A hold knows when it was granted, when and how it ended, and for the next
 * one the margin: the time between the last moment at which the former holder could act and the grant. One that was lost
 * knows that moment as `until`, and its successor knows it as `after`.
 */
export function holds(changes) {
  const found = [];
  const open = new Map();
  const last = new Map();
  const ordered = [...changes].sort((one, other) => (BigInt(one.revision) < BigInt(other.revision) ? -1 : 1));
  for (const change of ordered) {
    for (const event of change.events) {
      if (!event.lock || !event.token) continue;
      const key = `${event.lock}\n${event.token}`;
      const place = `${event.lock}\n${event.slot ?? ''}`;
      const at = event.at ? Date.parse(event.at) : undefined;
      if (event.cause === 'granted') {
        // An end that the archive lacks was here at the latest; its event counts if it comes.
        for (const hold of open.values()) {
          if (!hold.end && excludes(hold, event)) Object.assign(hold, { to: at, end: 'unrecorded' });
        }
        const before = last.get(place);
        last.delete(place);
        const margin = before && event.clock_ms !== undefined ? event.clock_ms - before.clock : undefined;
        const hold = {
          lock: event.lock,
          token: event.token,
          client: event.client,
          lease: event.lease,
          slot: event.slot,
          mode: event.mode,
          tokens: [{ token: event.token, mode: event.mode }],
          says: content(event.metadata, event.metadata_base64),
          revision: change.revision,
          from: at,
          margin: before && before.lost ? margin : undefined,
          after: before && before.lost ? before.hold : undefined,
          gap: before && !before.lost ? margin : undefined,
        };
        open.set(key, hold);
        found.push(hold);
      } else if (event.cause === 'upgraded' || event.cause === 'downgraded') {
        // The same hold goes on under another token.
        const [oldKey, old] = [...open].findLast(([, hold]) => hold.lock === event.lock && hold.lease === event.lease) || [];
        const hold = old || { lock: event.lock, client: event.client, lease: event.lease, tokens: [] };
        if (!old) found.push(hold);
        open.delete(oldKey);
        Object.assign(hold, { token: event.token, mode: event.mode });
        hold.tokens.push({ from: at, token: event.token, mode: event.mode });
        open.set(key, hold);
      } else if (ENDS.has(event.cause)) {
        let hold = open.get(key);
        if (!hold) {
          hold = { lock: event.lock, token: event.token, client: event.client, lease: event.lease, slot: event.slot };
          found.push(hold);
        }
        open.delete(key);
        Object.assign(hold, {
          to: at,
          end: event.cause,
          endRevision: change.revision,
          by: event.by,
          reason: event.reason,
          left: event.left_ms,
        });
        const lost = !GIVEN_BACK.has(event.cause);
        const stops = lost ? event.renewed_clock_ms + event.ttl_ms : event.clock_ms;
        if (stops !== undefined && !Number.isNaN(stops)) last.set(place, { clock: stops, lost, hold });
        if (lost && at && stops > event.clock_ms) hold.until = at + stops - event.clock_ms;
      } else if (event.cause === 'updated' && open.has(key)) {
        open.get(key).says = content(event.metadata, event.metadata_base64);
      } else if (event.cause === 'cooled' && event.reason && !event.by && event.clock_ms !== undefined) {
        // The holder said that it has stopped.
        const place0 = last.get(place);
        if (place0) {
          last.set(place, { ...place0, clock: event.clock_ms, lost: true });
          place0.hold.until = at;
        }
      }
    }
  }
  return found;
}

/**
 * Who held a lock at a time, by its holds, each with the token and mode that it had then, if they are known.
 */
export function heldAt(all, time) {
  const held = all.filter((hold) => (hold.from === undefined || hold.from <= time) && (hold.to === undefined || hold.to > time));
  return held.map((hold) => {
    if (!hold.tokens) return hold;
    const { token, mode } = hold.tokens.findLast(({ from }) => from === undefined || from <= time) || {};
    return { ...hold, token, mode };
  });
}

/**
 * The holds that were lost without time to stop: those whose client may still work at `now`, and those before a present
 * hold that was granted meanwhile. `tokens` are the present holds.
 */
export function unsafe(all, tokens, now) {
  const before = all.filter((hold) => tokens.includes(hold.token) && hold.margin < 0).map((hold) => hold.after);
  return all.filter((hold) => hold.until && !tokens.includes(hold.token) && (hold.until > now || before.includes(hold)));
}
