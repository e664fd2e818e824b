// Work that does not go on: waits beyond a bound, holds beyond a bound, rings that were refused, and locks that were lost.

import { html, useEffect, useMemo, useState } from '../vendor/htm-preact.js';
import { AGAIN_MS, useHistory, useResource } from '../live.js';
import { useStates } from '../streams.js';
import { href, refilter } from '../router.js';
import { content, count, duration, forInput, nested, plural } from '../format.js';
import { holds } from '../holds.js';
import { ringOf } from '../rings.js';
import { Age, Brief, ClientLink, Command, Empty, Further, LeaseLink, Limited, LockLink, nothing, ONE_PAST, Panel, Problem, TextFilter, Time, TimeHead } from '../parts/basic.js';
import { longestFirst, WaitsTable } from '../parts/waits.js';
import { LossTable } from './lock.js';

/** Of so many of the longest waits the end of the chain is read. */
const ENDS = 10;
const BOUNDS = [['10 s', 10_000], ['1 min', 60_000], ['5 min', 300_000], ['30 min', 1_800_000], ['1 h', 3_600_000]];

function Bound({ label, name, value, filters }) {
  return html`<label>${label} <select value=${value} onChange=${(event) => refilter({ [name]: event.target.value })}>
    ${BOUNDS.map(([text, ms]) => html`<option value=${ms}>${text}</option>`)}</select></label>`;
}

/** A day in the zone of this browser, so many days ago, as the address has it. */
function day(ago) {
  const date = new Date();
  date.setDate(date.getDate() - ago);
  return forInput(date).slice(0, 10);
}

/** Where a day of 23 to 25 hours begins and ends. */
function bounds(text) {
  const from = new Date(`${text}T00:00:00`);
  if (Number.isNaN(from.getTime())) return undefined;
  const to = new Date(from);
  to.setDate(to.getDate() + 1);
  return { since: from.toISOString(), until: new Date(to - 1).toISOString() };
}

function Losses({ taken, on, below }) {
  const within = on && bounds(on);
  const past = within && Date.parse(within.until) < Date.now();
  const { data, error, further, reading } = useHistory({ ...(taken ? { cause: 'forced' } : { lost: true }), ...(below ? { prefix: below } : {}), ...within }, past ? 0 : 5000);
  const list = useMemo(() => (data ? holds(data.changes).reverse() : []), [data]);
  const days = [['All days', ''], ['Today', day(0)], ['Yesterday', day(1)]];
  const words = ['tenure', 'history', '--lost', ...(below ? ['--prefix', below] : []), ...(within ? ['--since', within.since, '--until', within.until] : [])];
  return html`<${Panel} title="Lost or taken away" id="losses" note="locks that their holders did not release: who lost what, by whom and why" aside=${html`<${Command} words=${words} />`}>
    <form class="filters" aria-label="Which losses" onSubmit=${(event) => event.preventDefault()}>
      <label>Show <select name="losses" value=${taken ? 'forced' : ''} onChange=${(event) => refilter({ losses: event.target.value })}><option value="">all that were lost</option><option value="forced">taken away by a person</option></select></label>
      <${TextFilter} label="Below prefix" name="below" value=${below} placeholder="all" atEnd apply=${(value) => refilter({ below: value })} />
      <label>Day <input type="date" name="day" value=${on || ''} onChange=${(event) => refilter({ day: event.target.value })} /></label>
      <span class="ranges">${days.map(([label, value]) => html`<button type="button" class="quiet" aria-pressed=${(on || '') === value} onClick=${() => refilter({ day: value })}>${label}</button>`)}</span></form>
    <${Problem} error=${error} what="The past cannot be read" instead=${ONE_PAST} />
    ${data && html`<${LossTable} list=${list} empty=${further ? 'None in what was read so far.' : within ? 'None is recorded on that day.' : 'None is recorded.'} /><${Further} further=${further} reading=${reading} />`}
  <//>`;
}

function Parts({ parts }) {
  const go = (id) => () => {
    const heading = document.getElementById(id);
    heading.scrollIntoView();
    heading.focus({ preventScroll: true });
  };
  return html`<nav class="parts" aria-label="On this page">${parts.map(([id, label]) => html`<button key=${id} class="quiet" onClick=${go(id)}>${label}</button>`)}</nav>`;
}

/** How many rings are looked for without being asked. */
const RINGS_SHOWN = 5;

/** Who waited for which lock, and who was in the way. */
function Ring({ change, open }) {
  const [wanted, want] = useState(open);
  const [ring, set] = useState();
  useEffect(() => {
    if (!wanted) return undefined;
    let timer;
    let current = true;
    const look = () => ringOf(change).then((it) => current && set(it), () => (timer = setTimeout(look, AGAIN_MS)));
    look();
    return () => {
      current = false;
      clearTimeout(timer);
    };
  }, [wanted, change.revision]);
  if (!wanted) return html`<button class="quiet" onClick=${() => want(true)}>Who waited for whom</button>`;
  if (!ring) return html`<span class="dim">Looking…</span>`;
  if (ring.error) return html`<span class="dim">${ring.error.message}</span>`;
  const { links, closed } = ring;
  return html`<ol class="ring">${links.map((link, index) => html`<li key=${link.lease}><${ClientLink} client=${link.client} />
      <span class="dim">${index ? ' waited for ' : ' asked for '}</span><${LockLink} lock=${link.lock} />
      ${link.by ? html`<span class="dim">${link.by.holds ? ', held by ' : ', behind '}</span><${ClientLink} client=${link.by.client} />` : html`<span class="dim">; what was in its way is not recorded</span>`}</li>`)}</ol>
    ${closed && html`<span class="dim">and so on, for ever</span>`}`;
}

/** Prefixes that are closed to new holders. */
function Drained() {
  const { data, at } = useResource('/v1/drains', { stale: true }, 10_000);
  if (!data || !data.drains.length) return null;
  return html`<${Panel} title="Drained prefixes" id="drained" note="below these, no lock is granted until they are opened again" aside=${html`<${Command} words=${['tenure', 'drain', '--list']} />`}>
    <table><thead><tr><th>Prefix</th><th class="numeric">For</th><th>By, and why</th><th class="numeric">Holders left</th></tr></thead><tbody>
      ${data.drains.map((it) => html`<tr key=${it.prefix}><td>${it.prefix ? html`<a class="name" href=${href('now', '', { prefix: it.prefix })}>${it.prefix}</a>` : 'all locks'}</td><td class="numeric"><${Age} ms=${it.drained_ms} at=${at} /></td>
        <td class="end">${it.by ? html`<strong>${it.by}</strong>: ` : ''}${it.reason ? `“${it.reason}”` : ''}</td><td class="numeric">${it.holders == null ? '' : `${count(it.holders)}${it.more_holders ? ' or more' : ''}`}</td></tr>`)}</tbody></table>
  <//>`;
}

/**
 * The locks with waits beyond the bound, the longest first. How long is known only of those in the summary.
 */
function longWaits(overview, at, found, foundAt, bound) {
  const rows = new Map();
  for (const it of overview ? overview.longest_waits : []) {
    if (it.first.waiting_ms >= bound) rows.set(it.lock, { ...it, at });
  }
  for (const it of found ? found.locks : []) {
    if (!rows.has(it.lock)) rows.set(it.lock, { lock: it.lock, holder: it.holders[0], holders: it.holders.length, waiting: it.waiting, at: foundAt });
  }
  return longestFirst([...rows.values()]);
}

/** Whether the summary lists every wait beyond the bound. */
function listsAll(overview, bound) {
  if (!overview || !overview.complete) return false;
  const { longest_waits: waits, awaited } = overview;
  return waits.length >= awaited || waits[waits.length - 1].first.waiting_ms < bound;
}

function Waits({ rows, bound, cut, empty }) {
  if (!rows.length) return html`<${Empty}>${empty}<//>`;
  const unknown = rows.filter((it) => !it.first).length;
  return html`<${WaitsTable} rows=${rows} ends=${unknown < rows.length ? ENDS : 0} beyond=${`> ${duration(bound)}`} />
    ${unknown > 0 && html`<p class="note">How long the first in the queue waits is known of the ${count(rows.length - unknown)} longest waits. The others wait longer than ${duration(bound)}, in the order of their names.</p>`}
    ${cut && html`<p class="note">Not all locks were searched: there may be more such waits. <a href=${href('now', '', { waiting_ms: bound })}>All of them: Now</a></p>`}`;
}

export function Stuck({ filters, console }) {
  const waits = Number(filters.waits) || 60_000;
  const bound = Number(filters.holds) || 1_800_000;
  const { data: overview, at } = useStates('/v1/overview', { follow: true }, 'overview');
  const long = useResource('/v1/locks', { waiting_ms: waits, limit: 200, stale: true }, 5000);
  const rings = useHistory({ cause: 'deadlock' }, 10_000);
  const held = overview ? overview.longest_holds.filter((it) => it.holder.state === 'held' && it.holder.held_ms >= bound) : [];
  const moreHeld = held.length > 0 && held.length === overview.longest_holds.length && (overview.held > held.length || !overview.complete);
  const holders = held.filter((it) => !nested(it.lock));
  const stuck = longWaits(overview, at, long.data, long.at, waits);
  const cut = long.data && long.data.next && !listsAll(overview, waits);
  const none = nothing(console, `No client waits longer than ${duration(waits)}.`, `No client waits longer than ${duration(waits)} for a lock that you may see.`);
  const [longest] = overview ? longestFirst(overview.longest_waits) : [];
  useEffect(() => {
    const heading = filters.show && document.getElementById(filters.show);
    if (heading) heading.scrollIntoView();
  }, [filters.show, Boolean(overview), Boolean(long.data), Boolean(rings.data)]);
  return html`<h1 tabindex="-1">Stuck and lost</h1>
    <${Limited} console=${console} />
    <${Parts} parts=${[['waits', `Waiting for long${long.data ? ` (${stuck.length}${cut ? '+' : ''})` : ''}`], ['holds', `Held for long${overview ? ` (${holders.length}${moreHeld ? '+' : ''})` : ''}`], ['rings', 'Refused deadlocks'], ['losses', 'Lost or taken away: by whom and why']]} />
    <form class="filters" aria-label="Bounds" onSubmit=${(event) => event.preventDefault()}>
      <${Bound} label="Waits longer than" name="waits" value=${waits} filters=${filters} />
      <${Bound} label="Holds longer than" name="holds" value=${bound} filters=${filters} />
    </form>
    <${Panel} title="Waiting for long" id="waits" note=${stuck.length ? `${plural(stuck.length, 'lock')}, the longest wait first` : ''}>
      <${Problem} error=${long.error} />
      ${(stuck.length > 0 || (long.data && !cut)) && html`<${Waits} rows=${stuck} bound=${waits} cut=${cut} empty=${html`${none}${longest ? html` The longest wait: <${ClientLink} client=${longest.first.client} /> for <${LockLink} lock=${longest.lock} />, <${Age} ms=${longest.first.waiting_ms} at=${at} />.` : ''}`} />`}
    <//>
    <${Drained} />
    <${Panel} title="Held for long" id="holds" note="their clients renew their leases, so these locks do not become free by themselves">
      ${holders.length
        ? html`<table class="stack"><thead><tr><th>Lock</th><th>Held by</th><th class="numeric">Held for</th><th class="numeric">In the queue</th><th>Metadata</th><th class="spare">Lease</th></tr></thead><tbody>
            ${holders.map(
              (it) => html`<tr key=${it.lock}><td class="key" data-label="Lock"><${LockLink} lock=${it.lock} by=${it.holder.client} /></td><td class="key" data-label="Held by"><${ClientLink} client=${it.holder.client} /></td>
                <td class="numeric" data-label="Held for"><${Age} ms=${it.holder.held_ms} at=${at} /></td><td class="numeric" data-label="In the queue">${count(it.waiting)}</td><td class="says" data-label="Metadata"><${Brief} text=${content(it.holder.metadata, it.holder.metadata_base64)} /></td><td class="spare"><${LeaseLink} lease=${it.holder.lease} /></td></tr>`,
            )}</tbody></table>
            ${moreHeld && html`<p class="note">These are the ${count(holders.length)} longest holds. There may be more that are longer than ${duration(bound)}.</p>`}`
        : overview && html`<${Empty}>${nothing(console, `Nothing is held longer than ${duration(bound)}.`, `Nothing that you may see is held longer than ${duration(bound)}.`)}<//>`}
    <//>
    <${Panel} title="Refused deadlocks" id="rings" note="requests that would have waited for each other for ever" aside=${html`<${Command} words=${['tenure', 'help', 'DEADLOCK']} />`}>
      <${Problem} error=${rings.error} what="The past cannot be read" instead="Refused deadlocks are shown to callers with the verb read for the cluster." />
      ${rings.data &&
      (rings.data.changes.length
        ? html`<div class="scroll" tabindex="0" role="group" aria-label="Refused deadlocks"><table><thead><tr><${TimeHead} label="When" /><th class="spare">Refused</th><th class="spare">Asked for</th><th class="spare">Lease</th><th>Who waited for whom</th></tr></thead><tbody>${rings.data.changes.map(
            (change, index) => html`<tr key=${change.revision}><td><${Time} at=${change.events[0].at} bare /></td><td class="spare"><${ClientLink} client=${change.events[0].client} /></td>
              <td class="spare">${change.events.map((event) => html`<${LockLink} lock=${event.lock} /> `)}</td><td class="spare">${change.events[0].lease && html`<${LeaseLink} lease=${change.events[0].lease} />`}</td>
              <td><${Ring} change=${change} open=${index < RINGS_SHOWN} /></td></tr>`,
          )}</tbody></table></div>`
        : html`<${Empty}>${rings.further ? 'None in what was read so far.' : 'None is recorded.'}<//>`)}
      <${Further} further=${rings.further} reading=${rings.reading} />
    <//>
    <${Losses} taken=${filters.losses === 'forced'} on=${filters.day} below=${filters.below} />`;
}
