// One client, or one lease: everything it holds and awaits, and what it lost.

import { html, useMemo } from '../vendor/htm-preact.js';
import { useHistory, useResource } from '../live.js';
import { name } from '../api.js';
import { content, duration, plural } from '../format.js';
import { holds } from '../holds.js';
import { ActButton, Revoke, useCan, whyNot } from '../acts.js';
import { Age, ClientLink, Command, Empty, Field, LeaseLink, Left, LockLink, Panel, Problem, TtlBar } from '../parts/basic.js';
import { LossTable } from './lock.js';

/** Who is in the way of a wait. */
function Why({ lock, lease }) {
  const { data, at } = useResource(`/v1/locks/${name(lock)}`, { view: 'explain', limit: 100 }, 5000);
  if (!data || !data.lock) return null;
  const holder = data.lock.holders[0];
  const own = data.ahead.find((it) => it.lease === lease);
  return html` <span class="dim">${holder ? html`held by <${ClientLink} client=${holder.client} /> for <${Age} ms=${holder.held_ms} at=${at} />` : 'held by nobody'}${own ? `; ${own.ahead ? `${own.ahead} ahead of it` : 'it is next'}` : ''}</span>`;
}

function LeaseCard({ lease, at, console }) {
  const may = useCan(console, 'force');
  const why = content(lease.metadata, lease.metadata_base64);
  return html`<article class="holder" aria-label=${`Lease ${lease.lease}`}>
    <div class="who"><span class="dim">lease</span> <${LeaseLink} lease=${lease.lease} /> <${ClientLink} client=${lease.client} /></div>
    ${why && html`<p class="why">“${why}”</p>`}
    <div class="lease-line"><${TtlBar} ttl=${lease.ttl_ms} left=${lease.left_ms} at=${at} label=${`Time left of lease ${lease.lease}`} />
      <span class="dim"><${Left} ms=${lease.left_ms} at=${at} /> of ttl ${duration(lease.ttl_ms)}</span></div>
    <dl class="wide">
      <${Field} label="Holds">${lease.holds.length ? lease.holds.slice(0, 100).map((hold) => html`<span class="item"><${LockLink} lock=${hold.lock} /> <span class="dim num">token ${hold.token}</span></span>`) : html`<span class="dim">nothing</span>`}<//>
      <${Field} label="Waits for">${lease.waits.length ? lease.waits.slice(0, 100).map((wait, index) => html`<span class="item"><${LockLink} lock=${wait.lock} />${index < 5 && html`<${Why} lock=${wait.lock} lease=${lease.lease} />`}</span>`) : html`<span class="dim">nothing</span>`}<//>
      ${lease.keys.length > 0 && html`<${Field} label="Keys">${lease.keys.slice(0, 20).join(', ')}${lease.keys.length > 20 ? ` and ${lease.keys.length - 20} more` : ''}<//>`}
    </dl>
    <div class="acts"><${ActButton} label="Revoke lease…" danger allowed=${may} why=${whyNot(console, 'force for the cluster')}>${(close) => html`<${Revoke} lease=${lease} close=${close} />`}<//></div>
  </article>`;
}

function Losses({ client }) {
  const { data, error } = useHistory({ client, lost: true }, 10_000);
  const list = useMemo(() => (data ? holds(data.changes).filter((hold) => hold.client === client).reverse() : []), [data]);
  return html`<${Panel} title="Recent losses" id="losses" aside=${html`<${Command} words=${['tenure', 'history', '--lost', '--client', client]} />`}>
    <${Problem} error=${error} what="The past cannot be read" />
    ${data && (list.length ? html`<${LossTable} list=${list} />` : html`<${Empty}>It lost nothing that is recorded.<//>`)}
  <//>`;
}

export function Client({ about: client, console }) {
  const { data, at, error } = useResource('/v1/leases', { client, limit: 200 }, 2000);
  const leases = data ? data.leases.filter((lease) => lease.client === client) : [];
  const held = leases.reduce((sum, lease) => sum + lease.holds.length, 0);
  const awaited = leases.reduce((sum, lease) => sum + lease.waits.length, 0);
  return html`<h1 tabindex="-1"><span class="kind">Client</span> <span class="name">${client}</span></h1>
    <${Problem} error=${error} />
    ${data && html`<p class="answer">${leases.length ? `It has ${plural(leases.length, 'lease')}, holds ${plural(held, 'lock')} and waits for ${awaited || 'none'}.` : 'It has no lease: it holds nothing and waits for nothing.'}</p>`}
    <div class="holders">${leases.map((lease) => html`<${LeaseCard} key=${lease.lease} lease=${lease} at=${at} console=${console} />`)}</div>
    <${Losses} client=${client} />`;
}

export function Lease({ about: id, console }) {
  const { data, at, error } = useResource(`/v1/leases/${name(id)}`, {}, 2000);
  const gone = error && error.reason === 'LEASE_NOT_FOUND';
  return html`<h1 tabindex="-1"><span class="kind">Lease</span> <span class="num">${id}</span></h1>
    ${gone ? html`<p class="answer">This lease does not exist any more: it expired, was revoked, or its client ended it.</p>` : html`<${Problem} error=${error} />`}
    ${data && !gone && html`<div class="holders"><${LeaseCard} lease=${data} at=${at} console=${console} /></div>`}
    ${data && html`<${Losses} client=${data.client} />`}`;
}
