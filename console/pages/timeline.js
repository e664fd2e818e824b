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
  const moved = (since, until) => refilter({ from: since, to: Math.max(since + 1000, until) });
  const { data, error, loading } = state;
  const all = useMemo(() => (data ? holds(data.changes).map((hold) => ({ ...hold, now: Date.now() })) : []), [data]);
  const within = all.filter((hold) => (hold.to ?? Infinity) >= from && (hold.from ?? 0) <= to);
  const shown = within.slice(-HOLDS_MAX);
  const at = filters.at ? Date.parse(filters.at) : undefined;
  const then = at ? heldAt(all, at) : [];
  const one = shown.find((hold) => `${hold.lock} ${hold.token}` === chosen);
  const input = (field) => (event) => {
    const value = Date.parse(event.target.value);
    if (value) refilter({ [field]: value });
  };
  const text = (field, other) => (value) => refilter({ [field]: value, [other]: '' });
  const asked = (event) => {
    const value = Date.parse(event.target.value);
    if (!value) refilter({ at: '' });
    else if (value < from || value > to) refilter({ at: new Date(value).toISOString(), from: value - HOUR / 2, to: value + HOUR / 2 });
    else refilter({ at: new Date(value).toISOString() });
  };
  const ranges = [['15 min', 900_000], ['1 h', HOUR], ['6 h', 6 * HOUR], ['1 day', 24 * HOUR], ['7 days', 168 * HOUR]];
  const words = ['tenure', 'history', ...(filters.lock ? [filters.lock] : filters.prefix ? ['--prefix', filters.prefix] : ['--prefix', { raw: "''" }]), '--since', new Date(from).toISOString(), '--until', new Date(to).toISOString()];
  return html`<h1 tabindex="-1">Timeline</h1>
    <form class="filters" aria-label="What to show" onSubmit=${(event) => event.preventDefault()}>
      <${TextFilter} label="Lock" name="lock" value=${filters.lock} atEnd apply=${text('lock', 'prefix')} />
      <${TextFilter} label="or prefix" name="prefix" value=${filters.prefix} placeholder="all" atEnd apply=${text('prefix', 'lock')} />
      <label>From, ${zone(new Date(from))} <input type="datetime-local" step="1" value=${forInput(new Date(from))} onChange=${input('from')} /></label>
      <label>To, ${zone(new Date(to))} <input type="datetime-local" step="1" value=${forInput(new Date(to))} onChange=${input('to')} /></label>
      <label>Who held it at, ${zone(new Date(at || to))} <input type="datetime-local" step="1" name="at" value=${at ? forInput(new Date(at)) : ''} onChange=${asked} /></label>
      <span class="ranges">${ranges.map(([label, span]) => html`<button type="button" class="quiet" onClick=${() => refilter({ from: Date.now() - span, to: Date.now() })}>${label}</button>`)}</span>
    </form>
    <${Problem} error=${error} what="The past cannot be read" instead=${ONE_PAST} />
    ${at && data && html`<${Panel} title=${`Held at ${when(new Date(at))} ${zone(new Date(at))}`} id="then">
      ${then.length ? html`<ul class="then">${then.slice(0, 50).map((hold) => html`<li><${LockLink} lock=${hold.lock} />: <strong><${ClientLink} client=${hold.client} /></strong>, ${hold.token ? `token ${hold.token}` : 'its token then is not in what was read'}, since ${hold.from ? html`<${Time} at=${hold.from} />` : 'before what was read'}${hold.to ? html`, until <${Time} at=${hold.to} />` : to < Date.now() - 5000 ? html`, at least until <${Time} at=${to} />` : ', and still'}</li>`)}</ul>` : html`<${Empty}>${data.unsure ? 'Not known: more happened before than was read. Choose a lock, or a shorter time.' : 'No client, as far as it is recorded.'}<//>`}<//>`}
    <${Panel} title="Who held what" id="lanes" note=${error ? '' : loading || !data ? 'Loading…' : `${plural(shown.length, 'hold')}${data.cut || within.length > shown.length ? '; there is more: zoom in, or choose a lock' : ''}`} aside=${html`<${Command} words=${words} />`}>
      ${shown.length > 0 ? html`<${Lanes} holds=${shown} from=${from} to=${to} moved=${moved} chosen=${chosen} choose=${choose} mark=${at} label="Holds over time. Arrow keys move, plus and minus zoom; Tab goes to the holds, and arrow keys from one to the next." />` : html`<${Empty}>${error ? '' : loading || !data ? 'Loading…' : 'Nothing happened here, as far as it is recorded.'}<//>`}
      ${one && html`<${HoldTable} list=${[one]} lockColumn at=${data.at} until=${to} />`}
      ${data && data.archive && html`<p class="note">${data.archive.begins_at ? html`The archive of this member begins at <${Time} at=${data.archive.begins_at} />.` : 'This member has no archive.'}${data.archive.holes.length ? ` It lacks ${plural(data.archive.holes.length, 'range')} of revisions.` : ''} Times are the wall clock of the member that led.</p>`}
    <//>
    ${shown.length > 0 && html`<${Panel} title="The same as a table" id="table" note=${shown.length > ROWS_MAX ? `the newest ${ROWS_MAX} of ${plural(shown.length, 'hold')}; zoom in for the others` : ''}><${HoldTable} list=${[...shown].reverse().slice(0, ROWS_MAX)} lockColumn=${!filters.lock} at=${data.at} until=${to} /><//>`}`;
}
