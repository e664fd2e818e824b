// What happens now: counts, rates, members, who waits longest, and every lock; and what a search finds, now and in the past.

import { html, useEffect, useRef, useState } from '../vendor/htm-preact.js';
import { get, isAnswer, name } from '../api.js';
import { AGAIN_MS, useNow, useResource } from '../live.js';
import { useSpaced, useStates } from '../streams.js';
import { href, refilter } from '../router.js';
import { cause, count, local, nested, plural, rate, zone } from '../format.js';
import { findings } from '../findings.js';
import { holds } from '../holds.js';
import { Age, ClientLink, Command, Empty, Limited, LockLink, nothing, Panel, Problem, State, TextFilter, Time, TimeHead } from '../parts/basic.js';
import { List, usePages } from '../parts/list.js';
import { Spark } from '../parts/chart.js';
import { longestFirst, WaitsTable } from '../parts/waits.js';
import { Ended, isUnknown, LastHeld } from './lock.js';

const KEPT = 60;
/** Another time since when the member counts differs by more. */
const SINCE_MS = 10_000;
/** Of so many of the longest waits the end of the chain is read. */
const ENDS = 5;

// The rates of the last two minutes, from what the member has counted.
function useRates(overview, at) {
  const known = useRef({ points: [] });
  const state = known.current;
  if (overview && state.at !== at) {
    const last = state.last;
    if (last && overview.totals.counted_ms > last.counted_ms) {
      const seconds = (overview.totals.counted_ms - last.counted_ms) / 1000;
      const per = (field) => Math.max(0, (overview.totals[field] - last[field]) / seconds);
      state.points.push({ granted: per('granted'), handed: per('handed_over'), lost: per('lost') });
      if (state.points.length > KEPT) state.points.shift();
    }
    state.last = overview.totals;
    state.at = at;
  }
  return state.points;
}

// Since when the member counts, from how long it says that is.
function useSince(overview, at) {
  const since = useRef();
  const told = overview && at - overview.totals.counted_ms;
  if (overview && !(Math.abs(told - since.current) < SINCE_MS)) since.current = told;
  return since.current && new Date(since.current);
}

function Tile({ label, value, note, level, title, children }) {
  return html`<div class=${`tile ${level || ''}`} title=${title}><span class="label">${label}</span><span class="value">${value}</span>
    ${note && html`<span class="note">${note}</span>`}${children}</div>`;
}

/** The members in one line each, and what is wrong. */
export function Health({ status, error }) {
  if (!status) return error ? html`<${Problem} error=${error} what="The cluster's state is unknown" />` : null;
  const all = findings(status);
  const worst = all[0];
  const verdict = all.find((it) => it.agrees);
  const others = all.filter((it) => it !== verdict && it.level !== 'ok');
  return html`<div class=${`health ${worst.level}`} role="status">
    <a class="verdict" href=${href('members')}><span class=${`dot ${worst.level}`} aria-hidden="true"></span>
      ${worst.level === 'ok' ? 'Healthy: ' : verdict.level === 'bad' ? 'Not working: ' : worst.level === 'bad' ? 'Working, with a fault: ' : 'Working, with a warning: '}${verdict.what}</a>
    ${others.length > 0
      ? html`<a class=${`other ${others[0].level}`} href=${href('members')}>${others[0].what}${others.length > 1 ? ` (and ${others.length - 1} more)` : ''}</a>`
      : verdict.next && html`<span class="note">${verdict.next}</span>`}
    <span class="members">${[...status.members].sort((one, other) => one.name.localeCompare(other.name)).map(
      (member) => html`<span class=${`member ${member.up ? 'up' : 'down'}`} key=${member.member_id}
        title=${`${member.name}: ${member.up ? member.role : 'does not answer'}${member.behind ? `, ${member.behind} entries behind` : ''}`}>
        ${member.name || member.member_id}${member.role === 'leader' ? ' ★' : ''}${member.up ? '' : ' ✕'}</span>`,
    )}</span>
  </div>`;
}

function Waits({ list, at, console }) {
  if (!list.length) return html`<${Empty}>${nothing(console, 'No client waits.', 'No client waits for a lock that you may see.')}<//>`;
  return html`<${WaitsTable} rows=${list.slice(0, 10)} at=${at} ends=${ENDS} />`;
}

function Prefixes({ list, at, console }) {
  if (!list.length) return html`<${Empty}>${nothing(console, 'No lock is held or awaited.', 'No lock that you may see is held or awaited.')}<//>`;
  const most = Math.max(...list.map((it) => it.waiting), 1);
  return html`<table><thead><tr><th>Prefix</th><th class="numeric">Locks</th><th class="numeric">Waiting</th><th class="numeric">Longest wait</th></tr></thead>
    <tbody>${list.slice(0, 10).map(
      (it) => html`<tr key=${it.prefix}><td>${it.prefix === '…' ? html`<span class="dim">all others</span>` : html`<a class="name" href=${href('now', '', { prefix: it.prefix })}>${it.prefix}</a>`}</td>
        <td class="numeric">${count(it.locks)}</td>
        <td class="numeric"><span class="bar" style=${{ width: `${Math.round((it.waiting / most) * 40)}px` }}></span>${count(it.waiting)}</td>
        <td class="numeric">${it.longest_wait_ms ? html`<${Age} ms=${it.longest_wait_ms} at=${at} />` : ''}</td></tr>`,
    )}</tbody></table>`;
}

const MODES = { slot: 'slots', shared: 'shared', exclusive: 'exclusive' };
function mode(lock) {
  if (lock.slots) return `slots ${lock.holders.length}/${lock.slots}`;
  const first = lock.holders[0];
  return first ? (first.election ? 'election' : MODES[first.mode]) : '–';
}

const state = (lock) => html`<${State} state=${lock.holders.length ? lock.holders[0].state : 'vacant'} />`;

const COLUMNS = [
  {
    label: 'Lock',
    width: 'minmax(12rem, 2.4fr)',
    narrow: 'minmax(0, 1.4fr)',
    slim: { wraps: true },
    cell: (lock) => html`<${LockLink} lock=${lock.lock} by=${lock.holders.length && lock.holders[0].client} />${(lock.runs || []).map((run) => html` <a class="dim run" href=${href('lock', run.lock)}>+ nested run</a>`)}`,
  },
  { label: 'State', width: '8rem', cell: state },
  { label: 'Mode', width: '7rem', cell: mode },
  {
    label: 'Held by',
    width: 'minmax(9rem, 1.6fr)',
    narrow: 'minmax(0, 1fr)',
    slim: { label: 'Held by, state', wraps: true, cell: (lock) => html`<div>${lock.holders.length > 0 && html`<${ClientLink} client=${lock.holders[0].client} />${lock.holders.length > 1 ? ` +${lock.holders.length - 1}` : ''}`}</div>${state(lock)}` },
    cell: (lock) =>
      lock.holders.length
        ? html`<${ClientLink} client=${lock.holders[0].client} />${lock.holders.length > 1 ? html`<span class="dim"> +${lock.holders.length - 1}</span>` : ''}`
        : html`<span class="dim">none</span>`,
  },
  { label: 'Held for', width: '6rem', narrow: '3.9rem', numeric: true, cell: (lock) => lock.holders.length > 0 && html`<${Age} ms=${lock.holders[0].held_ms} at=${lock.at} />` },
  { label: 'Token', width: '7rem', numeric: true, cell: (lock) => lock.holders.length > 0 && lock.holders[0].token },
  { label: 'Waiting', width: '5rem', narrow: '3.6rem', numeric: true, cell: (lock) => (lock.waiting ? html`<strong>${count(lock.waiting)}</strong>` : '0') },
];

const NESTED = '/.nested/';
const NESTED_MS = 5000;

// The locks of nested runs, if all were found. Each of them is awaited.
function useNested(overview) {
  const revision = overview && overview.header.revision;
  const { data, reload } = useResource(overview && overview.awaited ? '/v1/locks' : undefined, { contains: NESTED, limit: 1000, stale: true }, (found) => (found && !found.locks.length ? 6 : 1) * NESTED_MS);
  const again = useSpaced(reload, 1000);
  useEffect(() => {
    if (data && (data.locks.length || overview?.longest_waits.some(({ lock }) => nested(lock)))) again();
  }, [revision]);
  if (!overview || !overview.awaited) return [];
  return data && !data.next ? data.locks.filter(({ lock }) => nested(lock)) : undefined;
}

// A summary or the counts of a prefix, without nested runs.
function without(counts, runs) {
  const [all, held, waiting] = [() => 1, (it) => Math.min(1, it.holders.length), (it) => it.waiting];
  const of = { locks: all, held, awaited: all, waiters: waiting, waiting };
  return { ...counts, ...Object.fromEntries(Object.keys(of).map((field) => [field, runs.reduce((left, it) => Math.max(0, left - of[field](it)), counts[field])])) };
}

// Rows with those of nested runs in the row of the real lock.
function folded(rows) {
  const runs = rows.filter(({ lock }) => lock.includes(NESTED) && nested(lock));
  if (!runs.length) return rows;
  const real = new Map(rows.map((row) => [row.lock, row]));
  const gone = new Set();
  for (const run of runs) {
    const row = real.get(nested(run.lock));
    if (!row) continue;
    gone.add(run);
    row.runs = [...(row.runs || []).filter((it) => it.lock !== run.lock), run];
  }
  return rows.filter((row) => !gone.has(row));
}

/** The filters, which are part of the address. */
function Filters({ filters }) {
  const set = (name) => (event) => refilter({ [name]: event.target.value });
  const typed = (label, name, placeholder) => html`<${TextFilter} label=${label} name=${name} value=${filters[name]} placeholder=${placeholder} apply=${(value) => refilter({ [name]: value })} />`;
  return html`<form class="filters" role="search" aria-label="Filter locks" onSubmit=${(event) => event.preventDefault()}>
    ${typed('Name begins with', 'prefix', 'jobs/')} ${typed('Name contains', 'contains')} ${typed('Client begins with', 'client', 'ci-7')}
    <label>State <select name="state" value=${filters.state || ''} onChange=${set('state')}>
      <option value="">any</option><option value="held">held</option><option value="awaited">awaited</option><option value="revoking">revoking</option></select></label>
    <label>Waiting longer than <select name="waiting_ms" value=${filters.waiting_ms || ''} onChange=${set('waiting_ms')}>
      <option value="">any</option><option value="1000">1 s</option><option value="10000">10 s</option><option value="60000">1 min</option><option value="600000">10 min</option><option value="3600000">1 h</option></select></label>
    ${Object.keys(filters).length > 0 && html`<a href=${href('now')}>Clear</a>`}
  </form>`;
}

function Locks({ filters, revision, total, console }) {
  const wanted = {};
  for (const field of ['prefix', 'contains', 'client', 'state', 'waiting_ms']) if (filters[field]) wanted[field] = filters[field];
  const filtered = Object.keys(wanted).length > 0;
  const { rows: all, more, loading, error, renew, ended } = usePages('/v1/locks', { ...wanted, stale: true }, 'locks');
  useEffect(() => {
    renew();
  }, [revision]);
  const rows = folded(all);
  const empty = filtered
    ? nothing(console, 'No lock that is held or awaited matches.', 'No lock that you may see, and that is held or awaited, matches.')
    : html`${nothing(console, 'No lock is held or awaited.', 'No lock that you may see is held or awaited.')} This takes one for half a minute: <${Command} words=${['tenure', 'run', 'deploy']} work=${['sleep', '30']} />`;
  const words = ['tenure', 'locks', ...(wanted.prefix ? ['--prefix', wanted.prefix] : [])];
  return html`<${Panel} title="Locks" id="locks" note=${filtered ? (ended ? plural(rows.length, 'match', 'matches') : `${count(rows.length)} matches so far`) : total == null ? '' : plural(total, 'lock')}
    aside=${html`<${Command} words=${words} />`}>
    <${Filters} filters=${filters} />
    <${Problem} error=${error} />
    <${List} rows=${rows} columns=${COLUMNS} keyOf=${(row) => row.lock} label="Locks" total=${filtered || total == null ? undefined : total + 1}
      more=${more} loading=${loading} empty=${empty} height=${620} />
  <//>`;
}

export function Now({ filters, console }) {
  const { data: overview, at, error: refused } = useStates('/v1/overview', { follow: true }, 'overview');
  const { data: status, error } = useResource('/v1/cluster', {}, 5000);
  const points = useRates(overview, at);
  const now = useNow();
  const [started] = useState(Date.now());
  const since = useSince(overview, at);
  const runs = useNested(overview);
  const real = overview && without(overview, runs || []);
  const counted = runs ? '' : ', with those of nested runs';
  const last = points[points.length - 1];
  const waits = overview ? longestFirst(overview.longest_waits) : [];
  const wait = waits[0];
  return html`<h1 tabindex="-1">Now</h1>
    <${Health} status=${status} error=${error} />
    <${Limited} console=${console} />
    ${overview
      ? html`<div class="tiles">
          <${Tile} label="Locks held" value=${count(real.held)} note=${`of ${plural(real.locks, 'lock')}${counted}`} />
          <${Tile} label="Locks awaited" value=${count(real.awaited)} note=${`by ${plural(real.waiters, 'request')}${counted}`} level=${real.awaited ? 'warn' : ''} />
          <${Tile} label="Longest wait" value=${wait ? html`<${Age} ms=${wait.first.waiting_ms} at=${at} />` : '–'} note=${wait ? html`<${LockLink} lock=${wait.lock} />` : nothing(console, 'no client waits', 'none that you see')} level=${wait && wait.first.waiting_ms > 60_000 ? 'warn' : ''} />
          <${Tile} label="Grants/s" value=${rate(last && last.granted)} note=${!last && 'measuring…'}><${Spark} values=${points.map((it) => it.granted)} label="Grants per second, last two minutes" /><//>
          <${Tile} label="Hand-overs/s" value=${rate(last && last.handed)} note=${!last && 'measuring…'}><${Spark} values=${points.map((it) => it.handed)} label="Hand-overs per second, last two minutes" /><//>
          <${Tile} label="Locks lost" value=${count(overview.totals.lost)} title=${`since ${local(since, false)} ${zone(since)}, when this member began to count`} note=${html`<a href=${href('stuck', '', { show: 'losses' })}>by whom, why</a>`} level=${last && last.lost > 0 ? 'bad' : ''} />
          <${Tile} label="Being revoked" value=${count(overview.revoking)} note="not free yet" title="Taken away; their holders have not confirmed yet that they stopped" level=${overview.revoking ? 'warn' : ''} />
          <${Tile} label="Leases" value=${count(overview.leases)} note=${plural(overview.elections, 'election')} />
        </div>
        ${!overview.complete && html`<p class="problem">Only ${count(overview.locks)} locks were read for this summary.</p>`}
        <div class="columns">
          <${Panel} title="Longest waits" id="waits" aside=${html`<a href=${href('stuck')}>Stuck and lost</a>`}><${Waits} list=${waits} at=${at} console=${console} /><//>
          <${Panel} title="Busiest prefixes" id="prefixes" note="most waiting first"><${Prefixes} list=${overview.prefixes.map((it) => without(it, (runs || []).filter(({ lock }) => lock.startsWith(it.prefix))))} at=${at} console=${console} /><//>
        </div>`
      : refused
      ? html`<${Problem} error=${refused} what="The summary cannot be read" />`
      : html`<p class="loading">${now - started > 3000 ? 'Waiting for the member’s summary…' : 'Loading…'}</p>`}
    <${Locks} filters=${filters} revision=${overview && overview.header.revision} total=${real && real.locks} console=${console} />`;
}

/** So many pages are searched for a part of a client's name. */
const PARTS_MAX = 5;
/** How many revisions are searched for names that contain a text. */
const PAST_MAX = 1000;

// The clients whose names contain a text, as far as the caller may see.
async function clientsLike(text, console, signal) {
  const wanted = text.toLowerCase();
  const clients = new Set();
  const [path, list, named] = console.readsAll ? ['/v1/leases', 'leases', (it) => [it.client]] : ['/v1/locks', 'locks', (it) => it.holders.map((holder) => holder.client)];
  const add = (answer) => answer[list].flatMap(named).forEach((client) => client.toLowerCase().includes(wanted) && clients.add(client));
  let after;
  for (let page = 0; page < PARTS_MAX; page += 1) {
    const answer = await get(path, { limit: 1000, after, stale: true }, signal);
    add(answer);
    after = answer.next;
    if (!after) return { clients: [...clients].sort(), whole: true };
  }
  add(await get(path, { client: text, limit: 1000, stale: true }, signal));
  return { clients: [...clients].sort(), whole: false };
}

// The locks of the past whose names contain a text, with the last that is recorded of each, the clients, and what the
// client of exactly that name held last.
async function pastLike(text, console, signal) {
  const wanted = text.toLowerCase();
  const locks = new Map();
  const clients = new Set();
  const own = { client: text, limit: 200 };
  let last;
  for (const params of [{ prefix: text, limit: 200 }, ...(console.readsAll ? [own, { limit: PAST_MAX }] : [])]) {
    const { changes } = await get('/v1/history', params, signal);
    if (params === own) last = holds(changes).reverse().find((hold) => hold.client === text);
    for (const event of changes.flatMap((change) => change.events)) {
      if (event.lock && event.lock.toLowerCase().includes(wanted) && !locks.has(event.lock)) locks.set(event.lock, event);
      if (event.client && event.client.toLowerCase().includes(wanted)) clients.add(event.client);
    }
  }
  return { locks: [...locks.values()], clients: [...clients], last };
}

// Reads something once, again while the member cannot answer.
function useOnce(key, read) {
  const [state, set] = useState({});
  useEffect(() => {
    const aborts = new AbortController();
    let timer;
    const load = () =>
      read(aborts.signal).then(
        (data) => set({ data }),
        (error) => {
          if (aborts.signal.aborted) return;
          set({ error });
          if (!isAnswer(error)) timer = setTimeout(load, AGAIN_MS);
        },
      );
    load();
    return () => {
      clearTimeout(timer);
      aborts.abort();
    };
  }, [key]);
  return state;
}

/** The lock of exactly this name, whether or not a client holds it now. */
function Exact({ lock }) {
  const { data, at, error } = useResource(`/v1/locks/${name(lock)}`, { view: 'explain', limit: 1 }, 5000);
  const past = useResource(`/v1/locks/${name(lock)}`, { view: 'history', archive: true, limit: 20 });
  const last = past.data && holds(past.data.changes).reverse().find((hold) => hold.end);
  const holder = data && data.lock && data.lock.holders[0];
  const links = html`<a href=${href('lock', lock)}>Its page</a> · <a href=${href('timeline', '', { lock })}>Its history</a>`;
  if (error && isAnswer(error)) return html`<p class="answer"><${LockLink} lock=${lock} />: ${error.reason === 'PERMISSION_DENIED' ? 'you may not see this lock.' : error.message}</p>`;
  if (data && isUnknown(data, past.data)) return html`<p class="answer">No lock is named <span class="name">${lock}</span>: none is held, awaited or recorded.</p>`;
  return html`<p class="answer"><${LockLink} lock=${lock} />: ${!data
      ? '…'
      : holder
        ? html`<${State} state=${holder.state} /> <${ClientLink} client=${holder.client} />, for <${Age} ms=${holder.held_ms} at=${at} />.`
        : `not held now${data.lock && data.lock.waiting ? `; ${plural(data.lock.waiting, 'client waits', 'clients wait')}` : ''}.`}${data && !holder ? html`<${LastHeld} hold=${last} />` : ''} ${links}</p>`;
}

/** The client of exactly this name, with the last that is recorded of it. */
function ExactClient({ client, present, last }) {
  if (!present && !last) return null;
  return html`<p class="answer"><${ClientLink} client=${client} />: a client${present ? '' : ' without a lease now'}.${last && html` It ${last.end ? 'last held' : 'holds'} <${LockLink} lock=${last.lock} />${last.end && html`<${Ended} hold=${last} />`}.`}</p>`;
}

/** What a search found. */
export function Found({ about: text, console }) {
  const now = useResource('/v1/locks', { contains: text, limit: 100, stale: true }, 10_000);
  const clients = useOnce(text, (signal) => clientsLike(text, console, signal));
  const past = useOnce(text, (signal) => pastLike(text, console, signal));
  const held = now.data ? now.data.locks : [];
  // More may match than were read.
  const present = new Set([...held.map((it) => it.lock), ...(now.data && now.data.next ? [text] : [])]);
  const gone = past.data ? past.data.locks.filter((event) => !present.has(event.lock)) : [];
  const known = new Set(clients.data ? clients.data.clients : []);
  const former = past.data ? past.data.clients.filter((client) => !known.has(client)) : [];
  const like = html`<strong class="name">${text}</strong>`;
  return html`<h1 tabindex="-1"><span class="kind">Search</span> <span class="name">${text}</span></h1>
    <${Limited} console=${console} />
    <${ExactClient} client=${text} present=${known.has(text)} last=${past.data && past.data.last} />
    <${Exact} lock=${text} />
    <${Panel} title="Locks held or awaited now" id="found-now" note=${now.data ? plural(held.length, 'match', 'matches') : ''}>
      <${Problem} error=${now.error} />
      ${held.length > 0 && html`<table><thead><tr><th>Lock</th><th>State</th><th>Held by</th><th class="numeric">Held for</th><th class="numeric">Waiting</th></tr></thead>
        <tbody>${held.map(
          (it) => html`<tr key=${it.lock}><td><${LockLink} lock=${it.lock} /></td><td><${State} state=${it.holders.length ? it.holders[0].state : 'vacant'} /></td>
            <td>${it.holders.length ? html`<${ClientLink} client=${it.holders[0].client} />` : html`<span class="dim">none</span>`}</td>
            <td class="numeric">${it.holders.length > 0 && html`<${Age} ms=${it.holders[0].held_ms} at=${now.at} />`}</td><td class="numeric">${count(it.waiting)}</td></tr>`,
        )}</tbody></table>`}
      ${now.data && !held.length && !now.data.next && html`<${Empty}>${nothing(console, 'No lock that is held or awaited now', 'No lock that you may see, and that is held or awaited now,')} has ${like} in its name.<//>`}
      ${now.data && now.data.next && html`<p class="note">Not all locks were searched. <a href=${href('now', '', { contains: text })}>All of them: Now</a></p>`}
    <//>
    <${Panel} title="Clients" id="found-clients" note=${clients.data ? plural(known.size + former.length, 'match', 'matches') : ''}>
      <${Problem} error=${clients.error} />
      ${clients.data && (known.size
        ? html`<ul class="then">${[...known].slice(0, 100).map((client) => html`<li key=${client}><${ClientLink} client=${client} /></li>`)}</ul>`
        : html`<${Empty}>${nothing(console, 'No client with a lease', 'No client that you may see')} has ${like} in its name.<//>`)}
      ${known.size > 100 && html`<p class="note">The first 100 are shown.</p>`}
      ${clients.data && !clients.data.whole && html`<p class="note">There are too many to search all names for a part. Names that begin with it were all searched.</p>`}
      ${former.length > 0 && html`<p class="note">Without a lease now: ${former.slice(0, 20).map((client) => html`<${ClientLink} client=${client} /> `)}</p>`}
    <//>
    <${Panel} title="Locks of the past, not held now" id="found-past" note=${past.data ? plural(gone.length, 'match', 'matches') : ''}>
      <${Problem} error=${past.error} what="The past cannot be read" instead="You may read the past of names that begin with a prefix of your roles: type such a name." />
      ${past.data && (gone.length
        ? html`<table><thead><tr><th>Lock</th><th>What happened last</th><th>Client</th><${TimeHead} label="When" /><th>History</th></tr></thead><tbody>${gone.slice(0, 100).map(
            (event) => html`<tr key=${event.lock}><td><${LockLink} lock=${event.lock} /></td><td>${cause(event.cause)}</td><td><${ClientLink} client=${event.client} /></td><td><${Time} at=${event.at} bare /></td>
              <td><a href=${href('timeline', '', { lock: event.lock })} aria-label=${`Timeline of ${event.lock}`}>Timeline</a></td></tr>`,
          )}</tbody></table>`
        : html`<${Empty}>None in what was searched: names that begin with ${like}${console.readsAll ? `, and the newest ${count(PAST_MAX)} revisions` : ''}.<//>`)}
    <//>`;
}
