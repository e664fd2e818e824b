// Who held what when: any window of the past that the archive of this member has.

import { html, useEffect, useMemo, useRef, useState } from '../vendor/htm-preact.js';
import { get, isAnswer, name } from '../api.js';
import { AGAIN_MS } from '../live.js';
import { refilter } from '../router.js';
import { forInput, plural, when, zone } from '../format.js';
import { heldAt, holds } from '../holds.js';
import { ClientLink, Command, Empty, LockLink, ONE_PAST, Panel, Problem, TextFilter, Time } from '../parts/basic.js';
import { Lanes } from '../parts/chart.js';
import { HoldTable } from './lock.js';

const PAGES_MAX = 6;
const HOUR = 3_600_000;
/** How many holds are drawn, and how many the table has. */
const HOLDS_MAX = 3000;
const ROWS_MAX = 100;

// Reads a window, the newest first, and what was held when it began.
async function read(filters, from, to, signal) {
  const base = filters.lock ? [`/v1/locks/${name(filters.lock)}`, { view: 'history', archive: true }] : ['/v1/history', { prefix: filters.prefix }];
  const time = (ms) => new Date(ms).toISOString();
  const changes = [];
  let before;
  let cut = false;
  let archive;
  for (let page = 0; ; page += 1) {
    const answer = await get(base[0], { ...base[1], since: time(from), until: time(to), before, limit: 1000 }, signal);
    changes.push(...answer.changes);
    archive = answer.archive;
    before = answer.before;
    if (!before) break;
    if (page + 1 === PAGES_MAX) {
      cut = true;
      break;
    }
  }
  // What was held when the window began. Many waiters may have come and gone since the grant.
  const inside = changes.length;
  let unsure = cut;
  let earlier;
  for (let page = 0; page < PAGES_MAX; page += 1) {
    earlier = await get(base[0], { ...base[1], until: time(from), before: earlier && earlier.before, limit: 1000 }, signal);
    changes.push(...earlier.changes);
    if (!earlier.before || (filters.lock && earlier.changes.some((change) => change.events.some((event) => event.cause === 'granted')))) break;
    unsure = unsure || page + 1 === PAGES_MAX;
    if (!filters.lock) break;
  }
  return { changes, inside, cut, unsure: unsure || Boolean(!filters.lock && earlier.before), archive, from, to, at: Date.now() };
}

const UNIT_MS = { s: 1000, m: 60_000, h: HOUR, d: 24 * HOUR };

/** A time that was typed: so long ago, or in the zone of this browser, with its day or of today. */
function timeIn(text) {
  const time = text.trim();
  const [, number, unit] = /^(\d+) ?([smhd])(?:in)?(?: ago)?$/.exec(time) || [];
  if (number) return Date.now() - Number(number) * UNIT_MS[unit];
  return Date.parse(/^\d\d:/.test(time) ? `${forInput(new Date()).slice(0, 11)}${time}` : time.replace(' ', 'T'));
}

/** A time to type or to paste, in 24 hours in every browser. */
const TimeFilter = ({ label, name, at, apply }) => html`<${TextFilter} label=${`${label}, ${zone(new Date(at || Date.now()))}`} name=${name} value=${at ? forInput(new Date(at)).replace('T', ' ') : ''}
  placeholder="14:05, 10m ago or 2026-01-31 14:05" pattern="(\\d{4}-\\d\\d-\\d\\d[ T])?\\d\\d:\\d\\d(:\\d\\d)?|\\d+ ?([smhd]|min)( ago)?" atEnd apply=${apply} />`;

/** That a lock had no holder, or why that is not known. */
function Nobody({ data, at, begins }) {
  const { archive } = data;
  const why = begins
    ? html`records begin at <${Time} at=${begins} />`
    : at > data.at ? 'that is in the future'
    : data.unsure ? 'more happened before than was read; choose a lock, or a shorter time'
    : archive && archive.holes.length ? `none is recorded, but the records lack ${plural(archive.holes.length, 'range')} of revisions`
    : archive && !archive.begins_at && 'none is recorded, and this member has no archive';
  return why ? html`<strong>Unknown: ${why}.</strong>` : 'No client held it.';
}

export function Timeline({ filters }) {
  const [end] = useState(Date.now());
  const [state, set] = useState({});
  // Until the user chooses a range, the last hour, or less if all of it happened later.
  const from = Number(filters.from) || Math.max(end - HOUR, state.begins || 0);
  const to = Number(filters.to) || end;
  const [chosen, choose] = useState();
  const late = useRef();
  useEffect(() => {
    const aborts = new AbortController();
    clearTimeout(late.current);
    const load = async () => {
      set((before) => ({ ...before, loading: true }));
      try {
        const data = await read(filters, from, to, aborts.signal);
        const times = data.changes.map((change) => Date.parse(change.events[0].at)).filter(Boolean);
        const begins = times.length ? Math.min(...times) : undefined;
        set((before) => ({ data, begins: before.begins || (begins && begins - (to - begins) / 20 - 1000) }));
      } catch (error) {
        if (error.name === 'AbortError') return;
        set((before) => ({ ...before, loading: false, error }));
        if (!isAnswer(error) && !aborts.signal.aborted) late.current = setTimeout(load, AGAIN_MS);
      }
    };
    late.current = setTimeout(load, 200);
    return () => {
      clearTimeout(late.current);
      aborts.abort();
    };
  }, [filters.lock, filters.prefix, from, to]);
  // Not into the future.
  const moved = (since, until) => {
    const over = Math.max(0, until - Date.now());
    refilter({ from: since - over, to: Math.max(since + 1000, until) - over });
  };
  const { data, error, loading } = state;
  const all = useMemo(() => (data ? holds(data.changes).map((hold) => ({ ...hold, now: Date.now() })) : []), [data]);
  const within = all.filter((hold) => (hold.to ?? Infinity) >= from && (hold.from ?? 0) <= to);
  const shown = within.slice(-HOLDS_MAX);
  const at = filters.at ? Date.parse(filters.at) : undefined;
  const archive = data && data.archive;
  const begins = archive && archive.begins_at ? Date.parse(archive.begins_at) : undefined;
  const before = at < begins;
  const then = at && !before && at <= data?.at ? heldAt(all, at) : [];
  const one = shown.find((hold) => `${hold.lock} ${hold.token}` === chosen);
  const input = (field) => (text) => {
    const value = Math.min(timeIn(text), Date.now());
    if (value && field === 'from') refilter({ from: value, to: value < to ? to : Math.min(value + to - from, Date.now()) });
    else if (value) refilter({ from: value > from ? from : value - (to - from), to: value });
  };
  const text = (field, other) => (value) => refilter({ [field]: value, [other]: '' });
  const asked = (value) => {
    const until = Math.min(value + HOUR / 2, Date.now());
    if (!value) refilter({ at: '' });
    else if (value < from || value > to) refilter({ at: new Date(value).toISOString(), from: until - HOUR, to: until });
    else refilter({ at: new Date(value).toISOString() });
  };
  const ago = [['10 min ago', 600_000], ['1 h ago', HOUR], ['1 day ago', 24 * HOUR]];
  const ranges = [['15 min', 900_000], ['1 h', HOUR], ['6 h', 6 * HOUR], ['1 day', 24 * HOUR], ['7 days', 168 * HOUR]];
  const words = ['tenure', 'history', ...(filters.lock ? [filters.lock] : filters.prefix ? ['--prefix', filters.prefix] : ['--prefix', { raw: "''" }]), '--since', new Date(from).toISOString(), '--until', new Date(to).toISOString()];
  return html`<h1 tabindex="-1">Timeline</h1>
    <form class="filters" aria-label="What to show" onSubmit=${(event) => event.preventDefault()}>
      <${TextFilter} label="Lock" name="lock" value=${filters.lock} atEnd apply=${text('lock', 'prefix')} />
      <${TextFilter} label="or prefix" name="prefix" value=${filters.prefix} placeholder="all" atEnd apply=${text('prefix', 'lock')} />
      <div class="together" role="group" aria-label="Range">
        <${TimeFilter} label="From" name="from" at=${from} apply=${input('from')} />
        <${TimeFilter} label="To" name="to" at=${to} apply=${input('to')} />
        <span>or the last ${ranges.map(([label, span]) => html`<button type="button" class="quiet" onClick=${() => refilter({ from: Date.now() - span, to: Date.now() })}>${label}</button>`)}</span>
      </div>
      <div class="together" role="group" aria-label="Who held it">
        <${TimeFilter} label="Who held it at" name="at" at=${at} apply=${(text) => (timeIn(text) || !text.trim()) && asked(Math.min(timeIn(text), Date.now()))} />
        <span>${ago.map(([label, span]) => html`<button type="button" class="quiet" onClick=${() => asked(Date.now() - span)}>${label}</button>`)}</span>
      </div>
    </form>
    <${Problem} error=${error} what="The past cannot be read" instead=${ONE_PAST} />
    ${at > 0 && data && html`<${Panel} title=${`Held at ${when(new Date(at))} ${zone(new Date(at))}`} id="then">
      ${then.length ? html`<ul class="then">${then.slice(0, 50).map((hold) => html`<li><${LockLink} lock=${hold.lock} />: <strong><${ClientLink} client=${hold.client} /></strong>, ${hold.token ? `token ${hold.token}` : 'its token then is not in what was read'}, since ${hold.from ? html`<${Time} at=${hold.from} />` : 'before what was read'}${hold.to ? html`, until <${Time} at=${hold.to} />` : to < Date.now() - 5000 ? html`, at least until <${Time} at=${to} />` : ', and still'}</li>`)}</ul>` : html`<p class="unsafe"><${Nobody} data=${data} at=${at} begins=${before && begins} /></p>`}<//>`}
    <${Panel} title="Who held what" id="lanes" note=${error ? '' : loading || !data ? 'Loading…' : `${plural(shown.length, 'hold')}${data.cut || within.length > shown.length ? '; there is more: zoom in, or choose a lock' : ''}`} aside=${html`<${Command} words=${words} />`}>
      ${shown.length > 0 || begins > from ? html`<${Lanes} holds=${shown} begins=${begins} from=${from} to=${to} moved=${moved} chosen=${chosen} choose=${choose} mark=${at} label="Holds over time. Arrow keys move, plus and minus zoom; Tab goes to the holds, and arrow keys from one to the next." />` : html`<${Empty}>${error ? '' : loading || !data ? 'Loading…' : 'Nothing happened here, as far as it is recorded.'}<//>`}
      ${one && html`<${HoldTable} list=${[one]} lockColumn at=${data.at} until=${to} />`}
      ${data && data.archive && html`<p class="note">${data.archive.begins_at ? html`The archive of this member begins at <${Time} at=${data.archive.begins_at} />.` : 'This member has no archive.'}${data.archive.holes.length ? ` It lacks ${plural(data.archive.holes.length, 'range')} of revisions.` : ''} Times are the wall clock of the member that led.</p>`}
    <//>
    ${shown.length > 0 && html`<${Panel} title="The same as a table" id="table" note=${shown.length > ROWS_MAX ? `the newest ${ROWS_MAX} of ${plural(shown.length, 'hold')}; zoom in for the others` : ''}><${HoldTable} list=${[...shown].reverse().slice(0, ROWS_MAX)} lockColumn=${!filters.lock} at=${data.at} until=${to} /><//>`}`;
}
