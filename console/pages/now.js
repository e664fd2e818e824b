// What happens now: counts, rates, members, who waits longest, and every lock.

import { html, useEffect, useRef, useState } from '../vendor/htm-preact.js';
import { useNow, useResource, useStates } from '../live.js';
import { href, refilter } from '../router.js';
import { count, duration, plural, rate } from '../format.js';
import { findings } from '../findings.js';
import { Age, Badge, ClientLink, Command, Empty, LockLink, Panel, Problem, State } from '../parts/basic.js';
import { List, usePages } from '../parts/list.js';
import { Spark } from '../parts/chart.js';

const KEPT = 60;

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

function Tile({ label, value, note, level, children }) {
  return html`<div class=${`tile ${level || ''}`}><span class="label">${label}</span><span class="value">${value}</span>
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
      ${worst.level === 'ok' ? 'Healthy: ' : ''}${verdict.what}</a>
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

function Waits({ list, at }) {
  if (!list.length) return html`<${Empty}>Nobody waits.<//>`;
  return html`<table><thead><tr><th>Lock</th><th>First in the queue</th><th class="numeric">Waits</th><th>Held by</th><th class="numeric">For</th><th class="numeric">Queue</th></tr></thead>
    <tbody>${list.slice(0, 10).map(
      (it) => html`<tr key=${it.lock}><td><${LockLink} lock=${it.lock} /></td>
        <td>${it.first && html`<${ClientLink} client=${it.first.client} />`}</td>
        <td class="numeric">${it.first && html`<${Age} ms=${it.first.waiting_ms} at=${at} />`}</td>
        <td>${it.holder ? html`<${ClientLink} client=${it.holder.client} />` : html`<span class="dim">nobody</span>`}${it.holders > 1 ? html` <span class="dim">+${it.holders - 1}</span>` : ''}</td>
        <td class="numeric">${it.holder && html`<${Age} ms=${it.holder.held_ms} at=${at} />`}</td>
        <td class="numeric">${count(it.waiting)}</td></tr>`,
    )}</tbody></table>`;
}

function Prefixes({ list, at }) {
  if (!list.length) return html`<${Empty}>No locks.<//>`;
  const most = Math.max(...list.map((it) => it.waiting), 1);
  return html`<table><thead><tr><th>Prefix</th><th class="numeric">Locks</th><th class="numeric">Waiting</th><th class="numeric">Longest</th></tr></thead>
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

const COLUMNS = [
  { label: 'Lock', width: 'minmax(12rem, 2.4fr)', cell: (lock) => html`<${LockLink} lock=${lock.lock} />` },
  { label: 'State', width: '8rem', cell: (lock) => html`<${State} state=${lock.holders.length ? lock.holders[0].state : 'vacant'} />` },
  { label: 'Mode', width: '7rem', cell: mode },
  {
    label: 'Held by',
    width: 'minmax(9rem, 1.6fr)',
    cell: (lock) =>
      lock.holders.length
        ? html`<${ClientLink} client=${lock.holders[0].client} />${lock.holders.length > 1 ? html`<span class="dim"> +${lock.holders.length - 1}</span>` : ''}`
        : html`<span class="dim">nobody</span>`,
  },
  { label: 'For', width: '6rem', numeric: true, cell: (lock) => lock.holders.length > 0 && html`<${Age} ms=${lock.holders[0].held_ms} at=${lock.at} />` },
  { label: 'Token', width: '7rem', numeric: true, cell: (lock) => lock.holders.length > 0 && lock.holders[0].token },
  { label: 'Waiting', width: '5rem', numeric: true, cell: (lock) => (lock.waiting ? html`<strong>${count(lock.waiting)}</strong>` : '0') },
];

/** The filters, which are part of the address. */
function Filters({ filters }) {
  const set = (name) => (event) => refilter({ [name]: event.target.value });
  const late = useRef();
  const later = (name) => (event) => {
    const { value } = event.target;
    clearTimeout(late.current);
    late.current = setTimeout(() => refilter({ [name]: value }), 250);
  };
  return html`<form class="filters" role="search" aria-label="Filter locks" onSubmit=${(event) => event.preventDefault()}>
    <label>Prefix <input name="prefix" value=${filters.prefix || ''} onInput=${later('prefix')} placeholder="jobs/" spellcheck="false" autocomplete="off" /></label>
    <label>Contains <input name="contains" value=${filters.contains || ''} onInput=${later('contains')} spellcheck="false" autocomplete="off" /></label>
    <label>Client <input name="client" value=${filters.client || ''} onInput=${later('client')} placeholder="ci-7" spellcheck="false" autocomplete="off" /></label>
    <label>State <select name="state" value=${filters.state || ''} onChange=${set('state')}>
      <option value="">any</option><option value="held">held</option><option value="awaited">awaited</option><option value="revoking">revoking</option></select></label>
    <label>Waiting longer than <select name="waiting_ms" value=${filters.waiting_ms || ''} onChange=${set('waiting_ms')}>
      <option value="">any</option><option value="1000">1 s</option><option value="10000">10 s</option><option value="60000">1 min</option><option value="600000">10 min</option><option value="3600000">1 h</option></select></label>
    ${Object.keys(filters).length > 0 && html`<a href=${href('now')}>Clear</a>`}
  </form>`;
}

function Locks({ filters, revision, total }) {
  const wanted = {};
  for (const field of ['prefix', 'contains', 'client', 'state', 'waiting_ms']) if (filters[field]) wanted[field] = filters[field];
  const filtered = Object.keys(wanted).length > 0;
  const { rows, more, loading, error, renew, ended } = usePages('/v1/locks', { ...wanted, stale: true }, 'locks');
  useEffect(() => {
    renew();
  }, [revision]);
  const words = ['tenure', 'locks', ...(wanted.prefix ? ['--prefix', wanted.prefix] : [])];
  return html`<${Panel} title="Locks" id="locks" note=${filtered ? (ended ? plural(rows.length, 'match', 'matches') : `${count(rows.length)} matches so far`) : total == null ? '' : plural(total, 'lock')}
    aside=${html`<${Command} words=${words} />`}>
    <${Filters} filters=${filters} />
    <${Problem} error=${error} />
    <${List} rows=${rows} columns=${COLUMNS} keyOf=${(row) => row.lock} label="Locks" total=${filtered || total == null ? undefined : total + 1}
      more=${more} loading=${loading} empty=${filtered ? 'No lock matches.' : 'No lock is held or awaited.'} height=${620} />
  <//>`;
}

export function Now({ filters }) {
  const { data: overview, at, error: refused } = useStates('/v1/overview', { follow: true }, 'overview');
  const { data: status, error } = useResource('/v1/cluster', {}, 5000);
  const points = useRates(overview, at);
  const now = useNow();
  const [started] = useState(Date.now());
  const last = points[points.length - 1];
  const wait = overview && overview.longest_waits[0];
  return html`<h1 tabindex="-1">Now</h1>
    <${Health} status=${status} error=${error} />
    ${overview
      ? html`<div class="tiles">
          <${Tile} label="Held" value=${count(overview.held)} note=${`of ${plural(overview.locks, 'lock')}`} />
          <${Tile} label="Awaited" value=${count(overview.awaited)} note=${`${count(overview.waiters)} in queues`} level=${overview.awaited ? 'warn' : ''} />
          <${Tile} label="Longest wait" value=${wait ? html`<${Age} ms=${wait.first.waiting_ms} at=${at} />` : '–'} note=${wait ? html`<${LockLink} lock=${wait.lock} />` : 'nobody waits'} level=${wait && wait.first.waiting_ms > 60_000 ? 'warn' : ''} />
          <${Tile} label="Grants/s" value=${rate(last && last.granted)}><${Spark} values=${points.map((it) => it.granted)} label="Grants per second, last two minutes" /><//>
          <${Tile} label="Hand-overs/s" value=${rate(last && last.handed)}><${Spark} values=${points.map((it) => it.handed)} label="Hand-overs per second, last two minutes" /><//>
          <${Tile} label="Losses" value=${count(overview.totals.lost)} note=${html`<a href=${href('stuck')}>last ${duration(overview.totals.counted_ms)}: who, why</a>`} level=${last && last.lost > 0 ? 'bad' : ''} />
          <${Tile} label="Revoking" value=${count(overview.revoking)} note="not free yet" level=${overview.revoking ? 'warn' : ''} />
          <${Tile} label="Leases" value=${count(overview.leases)} note=${plural(overview.elections, 'election')} />
        </div>
        ${!overview.complete && html`<p class="problem">Only ${count(overview.locks)} locks were read for this summary.</p>`}
        <div class="columns">
          <${Panel} title="Longest waits" id="waits" aside=${html`<a href=${href('stuck')}>Stuck and lost</a>`}><${Waits} list=${overview.longest_waits} at=${at} /><//>
          <${Panel} title="Hottest prefixes" id="prefixes"><${Prefixes} list=${overview.prefixes} at=${at} /><//>
        </div>`
      : refused
      ? html`<${Problem} error=${refused} what="The summary cannot be read" />`
      : html`<p class="loading">${now - started > 3000 ? 'Waiting for the member’s summary…' : 'Loading…'}</p>`}
    <${Locks} filters=${filters} revision=${overview && overview.header.revision} total=${overview && overview.locks} />`;
}
