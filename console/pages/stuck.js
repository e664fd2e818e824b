// Work that does not go on: waits beyond a bound, holds beyond a bound, and rings that were refused.

import { html, useEffect, useMemo, useState } from '../vendor/htm-preact.js';
import { AGAIN_MS, useHistory, useResource, useStates } from '../live.js';
import { refilter } from '../router.js';
import { count, duration, plural } from '../format.js';
import { holds } from '../holds.js';
import { ringOf } from '../rings.js';
import { Age, ClientLink, Command, Empty, LeaseLink, LockLink, Panel, Problem, Time } from '../parts/basic.js';
import { LossTable } from './lock.js';

const BOUNDS = [['10 s', 10_000], ['1 min', 60_000], ['5 min', 300_000], ['30 min', 1_800_000], ['1 h', 3_600_000]];

function Bound({ label, name, value, filters }) {
  return html`<label>${label} <select value=${value} onChange=${(event) => refilter({ [name]: event.target.value })}>
    ${BOUNDS.map(([text, ms]) => html`<option value=${ms}>${text}</option>`)}</select></label>`;
}

function Losses({ taken }) {
  const { data, error } = useHistory(taken ? { cause: 'forced' } : { lost: true }, 5000);
  const list = useMemo(() => (data ? holds(data.changes).reverse() : []), [data]);
  return html`<${Panel} title="Recent losses" id="losses" note="holds that their clients did not give back: who lost what, by whom and why" aside=${html`<${Command} words=${['tenure', 'history', '--lost']} />`}>
    <form class="filters" aria-label="Which losses" onSubmit=${(event) => event.preventDefault()}>
      <label>Show <select name="losses" value=${taken ? 'forced' : ''} onChange=${(event) => refilter({ losses: event.target.value })}><option value="">all losses</option><option value="forced">taken away by someone</option></select></label></form>
    <${Problem} error=${error} what="The past cannot be read" />
    ${data && html`<${LossTable} list=${list.slice(0, 50)} />`}
  <//>`;
}

/** How many rings are looked for without being asked: each takes some searches of the past. */
const RINGS_SHOWN = 5;

/** Who waited for whom: each client with the lock that it waited for, and who was in the way there. */
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

export function Stuck({ filters }) {
  const waits = Number(filters.waits) || 60_000;
  const bound = Number(filters.holds) || 1_800_000;
  const { data: overview, at } = useStates('/v1/overview', { follow: true }, 'overview');
  const long = useResource('/v1/locks', { waiting_ms: waits, limit: 200, stale: true }, 5000);
  const rings = useHistory({ cause: 'deadlock' }, 10_000);
  const held = overview ? overview.longest_holds.filter((it) => it.holder.held_ms >= bound) : [];
  const first = new Map(overview ? overview.longest_waits.map((it) => [it.lock, it]) : []);
  const stuck = long.data ? long.data.locks : [];
  const longest = overview && overview.longest_waits[0];
  return html`<h1 tabindex="-1">Stuck and lost</h1>
    <form class="filters" aria-label="Bounds" onSubmit=${(event) => event.preventDefault()}>
      <${Bound} label="Waits longer than" name="waits" value=${waits} filters=${filters} />
      <${Bound} label="Holds longer than" name="holds" value=${bound} filters=${filters} />
    </form>
    <${Panel} title="Waits" id="waits" note=${long.data ? plural(stuck.length, 'lock') + (long.data.next ? ' and more' : '') : ''}>
      <${Problem} error=${long.error} />
      ${stuck.length
        ? html`<table><thead><tr><th>Lock</th><th>Held by</th><th class="numeric">For</th><th>First in the queue</th><th class="numeric">Waits</th><th class="numeric">Queue</th></tr></thead><tbody>
            ${stuck.map((it) => {
              const holder = it.holders[0];
              const wait = first.get(it.lock);
              return html`<tr key=${it.lock}><td><${LockLink} lock=${it.lock} /></td>
                <td>${holder ? html`<${ClientLink} client=${holder.client} />` : html`<span class="dim">nobody</span>`}</td>
                <td class="numeric">${holder && html`<${Age} ms=${holder.held_ms} at=${long.at} />`}</td>
                <td>${wait && html`<${ClientLink} client=${wait.first.client} />`}</td>
                <td class="numeric">${wait ? html`<${Age} ms=${wait.first.waiting_ms} at=${at} />` : `> ${duration(waits)}`}</td>
                <td class="numeric">${count(it.waiting)}</td></tr>`;
            })}</tbody></table>`
        : long.data && html`<${Empty}>Nobody waits longer than ${duration(waits)}.${longest ? html` The longest wait: <${ClientLink} client=${longest.first.client} /> for <${LockLink} lock=${longest.lock} />, <${Age} ms=${longest.first.waiting_ms} at=${at} />.` : ''}<//>`}
    <//>
    <${Panel} title="Leases that live, and hold for long" id="holds" note="their clients renew, so nothing ends by itself">
      ${held.length
        ? html`<table><thead><tr><th>Lock</th><th>Client</th><th>Lease</th><th class="numeric">Held</th><th class="numeric">Waiting</th><th>Says</th></tr></thead><tbody>
            ${held.map(
              (it) => html`<tr key=${it.lock}><td><${LockLink} lock=${it.lock} /></td><td><${ClientLink} client=${it.holder.client} /></td><td><${LeaseLink} lease=${it.holder.lease} /></td>
                <td class="numeric"><${Age} ms=${it.holder.held_ms} at=${at} /></td><td class="numeric">${count(it.waiting)}</td><td>${it.holder.metadata || ''}</td></tr>`,
            )}</tbody></table>`
        : overview && html`<${Empty}>Nothing is held longer than ${duration(bound)}.<//>`}
    <//>
    <${Panel} title="Deadlocks that were refused" id="rings" note="a request that would have waited for ever" aside=${html`<${Command} words=${['tenure', 'help', 'DEADLOCK']} />`}>
      <${Problem} error=${rings.error} what="The past cannot be read" />
      ${rings.data &&
      (rings.data.changes.length
        ? html`<div class="scroll" tabindex="0" role="group" aria-label="Deadlocks that were refused"><table><thead><tr><th>When</th><th>Refused</th><th>Asked for</th><th>Lease</th><th>Who waited for whom</th></tr></thead><tbody>${rings.data.changes.map(
            (change, index) => html`<tr key=${change.revision}><td><${Time} at=${change.events[0].at} /></td><td><${ClientLink} client=${change.events[0].client} /></td>
              <td>${change.events.map((event) => html`<${LockLink} lock=${event.lock} /> `)}</td><td>${change.events[0].lease && html`<${LeaseLink} lease=${change.events[0].lease} />`}</td>
              <td><${Ring} change=${change} open=${index < RINGS_SHOWN} /></td></tr>`,
          )}</tbody></table></div>`
        : html`<${Empty}>None is recorded.<//>`)}
    <//>
    <${Losses} taken=${filters.losses === 'forced'} />`;
}
