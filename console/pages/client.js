// One client, or one lease: everything it holds and awaits, and what it lost.

import { html, useMemo } from '../vendor/htm-preact.js';
import { useHistory, useRead, useResource } from '../live.js';
import { leasesOf, locksOf } from '../leases.js';
import { name } from '../api.js';
import { endOf, explainAll, requestsOf, waitersOf } from '../blocking.js';
import { content, duration, nested, plural } from '../format.js';
import { holds } from '../holds.js';
import { ActButton, Revoke, useCan, whyNot } from '../acts.js';
import { Age, Brief, ClientLink, Command, Empty, Field, Further, InTheEnd, LeaseLink, Left, Limited, LockLink, nothing, Panel, Problem, Some, Time, TtlBar } from '../parts/basic.js';
import { WhyItWaits } from '../parts/blocking.js';
import { LossTable } from './lock.js';

const LEASES = 50;
const ITEMS = 100;
/** How many of the locks that it waits for the first sentence names. */
const NAMED = 3;
/** How many leases have so many of their requests explained at first. */
const EXPLAINED = 3;
/** How often a search is made again, for each page that it took. */
const SEARCH_MS = 2000;
/** How often the waits of the first sentence are read again. */
const EXPLAIN_MS = 5000;
/** How often it is read who waits because of a client: up to 40 requests. */
const WAITERS_MS = 10_000;

function LeaseCard({ lease, at, console, open }) {
  const may = useCan(console, 'force');
  const why = content(lease.metadata, lease.metadata_base64);
  return html`<article class="holder" aria-label=${`Lease ${lease.lease}`}>
    <div class="who"><span class="dim">lease</span> <${LeaseLink} lease=${lease.lease} /> <${ClientLink} client=${lease.client} /></div>
    ${why && html`<p class="why">“${why}”</p>`}
    <div class="lease-line"><${TtlBar} ttl=${lease.ttl_ms} left=${lease.left_ms} at=${at} label=${`Time left of lease ${lease.lease}`} />
      <span class="dim">ends in <${Left} ms=${lease.left_ms} at=${at} /> unless renewed (ttl ${duration(lease.ttl_ms)})</span></div>
    <dl class="wide">
      <${Field} label="Holds">${lease.holds.length ? html`<${Some} of=${lease.holds} most=${ITEMS} each=${(hold) => html`<span class="item"><${LockLink} lock=${hold.lock} by=${lease.client} /> <span class="dim num">token ${hold.token}</span></span>`} />` : html`<span class="dim">nothing</span>`}<//>
      <${Field} label="Waits for">${lease.waits.length ? html`<${Some} of=${requestsOf(lease)} most=${ITEMS} each=${(request, index) => html`<${WhyItWaits} key=${request.place} request=${request} open=${open && index < EXPLAINED} />`} />` : html`<span class="dim">nothing</span>`}<//>
      ${lease.keys.length > 0 && html`<${Field} label="Keys">${html`<${Some} of=${lease.keys} most=${ITEMS} each=${(key) => html`<span class="item">${key}</span>`} />`}<//>`}
    </dl>
    <div class="acts"><${ActButton} label="Revoke lease…" does="Its client is told to stop, and loses all locks of the lease." danger allowed=${may} why=${whyNot(console, 'force for the cluster')}>${(close) => html`<${Revoke} lease=${lease} close=${close} />`}<//></div>
  </article>`;
}

function Losses({ client }) {
  const { data, error, further, reading } = useHistory({ client, lost: true }, 10_000);
  const list = useMemo(() => (data ? holds(data.changes).filter((hold) => hold.client === client).reverse() : []), [data]);
  return html`<${Panel} title="What it lost" id="losses" note="expired, taken away or revoked" aside=${html`<${Command} words=${['tenure', 'history', '--lost', '--client', client]} />`}>
    <${Problem} error=${error} what="The past cannot be read" instead="What a client lost is shown to callers with the verb read for the cluster. The page of a lock that you may read has its losses." />
    ${data && html`<${LossTable} list=${list} empty=${further ? 'Nothing in what was read so far.' : 'It lost nothing that is recorded.'} /><${Further} further=${further} reading=${reading} />`}
  <//>`;
}

/** What a client holds of the locks that the caller may read. */
function Visible({ client }) {
  const { data, at, error } = useRead(`locks of ${client}`, (signal, sent) => locksOf(client, { signal, sent }), (read) => 5000 * (read ? read.pages : 1));
  const locks = data ? data.found : [];
  const own = locks.flatMap((it) => it.holders.filter((holder) => holder.client === client).map((holder) => ({ lock: it.lock, holder })));
  const waits = locks.filter((it) => it.waiting && !it.holders.some((holder) => holder.client === client));
  return html`<${Panel} title="Locks that you may see" id="visible">
    <${Problem} error=${error} />
    ${data && !own.length && html`<${Empty}>It holds no lock that you may see.<//>`}
    ${own.length > 0 && html`<${Some} of=${own} most=${ITEMS} within=${(rows) => html`<ul class="then">${rows}</ul>`} each=${({ lock, holder }) => html`<li key=${`${lock} ${holder.token}`}><${LockLink} lock=${lock} /> <span class="dim">held for <${Age} ms=${holder.held_ms} at=${at} />, token ${holder.token}</span></li>`} />`}
    ${waits.length > 0 && html`<${Some} of=${waits} most=${20} each=${(it) => html`<${LockLink} lock=${it.lock} /> `} within=${(rows) => html`<p class="note">It, or a client whose name begins with its name, waits for ${rows}</p>`} />`}
    ${data && !data.whole && html`<p class="note">There are more locks than were read.</p>`}
  <//>`;
}

/** How long a client waits for each of the named locks, and for whom in the end. */
function Waiting({ client, waits }) {
  const named = waits.slice(0, NAMED);
  const { data, at } = useRead(`waits of ${client}`, (signal, sent) => explainAll(named, signal, sent), EXPLAIN_MS);
  const more = ({ lock, lease }) => {
    const explained = data && data.get(lock);
    if (!explained) return '';
    const own = explained.own || explained.ahead.find((it) => it.lease === lease);
    const end = endOf(explained);
    return html`${own && html` for <${Age} ms=${own.waiting_ms} at=${at} />`}${end && (end.lock === lock ? html` (held by <${ClientLink} client=${end.client} />)` : html` (in the end for <${InTheEnd} end=${end} />)`)}`;
  };
  return html`${waits.length > 1 ? `${plural(waits.length, 'lock')}: ` : ''}${named.map((wait, index) => html`${index ? ', ' : ''}<${LockLink} key=${wait.lock} lock=${wait.lock} />${more(wait)}`)}${waits.length > NAMED ? ', …' : ''}`;
}

/** What a client does with its locks, since when, and who waits because of it. */
function Holding({ client, held, all }) {
  const named = held.slice(0, NAMED);
  const { data, at } = useRead(`held by ${client} ${named.map((it) => it.lock).join(' ')}`, (signal, sent) => explainAll(named.map(({ lock }) => ({ lock })), signal, sent), EXPLAIN_MS);
  const waiters = useRead(`who waits for ${client} ${all.join(' ')}`, (signal, sent) => waitersOf(all, client, signal, sent), WAITERS_MS);
  const { clients, whole } = waiters.data || {};
  const grants = named.map(({ lock, token }) => {
    const explained = data && data.get(lock);
    const holder = explained && explained.lock && explained.lock.holders.find((it) => it.token === token);
    return holder && { lock, held: holder.held_ms, says: content(holder.metadata, holder.metadata_base64) };
  }).filter(Boolean);
  return html`${grants.map(({ lock, held: ms, says }) => html`<p class="answer" key=${lock}><${LockLink} lock=${lock} />: held since <${Time} at=${at - ms} />, for <${Age} ms=${ms} at=${at} />${says ? html`: “<${Brief} text=${says} />”` : '; it does not say what it does'}.</p>`)}
    ${clients && (clients.length > 0 || whole) && html`<p class="answer">${clients.length
      ? html`<strong>${whole ? '' : 'At least '}${plural(clients.length, 'client waits', 'clients wait')} because of it in the end</strong>: ${clients.slice(0, 5).map((it, index) => html`${index ? ', ' : ''}<${ClientLink} client=${it} />`)}${clients.length > 5 ? ', …' : ''}.`
      : 'No client waits because of it.'}</p>`}`;
}

export function Client({ about: client, console }) {
  const { data, at, error } = useRead(`leases of ${client}`, (signal, sent) => leasesOf(client, { signal, sent }), (read) => SEARCH_MS * (read ? read.pages : 1));
  const leases = data ? data.found : [];
  // For a lock of its own nested run it waits for itself.
  const inner = new Set(leases.flatMap((lease) => lease.holds.map((hold) => hold.lock)).filter(nested));
  const all = leases.flatMap((lease) => lease.holds);
  const own = all.filter(({ lock }) => !nested(lock));
  const held = own.length;
  const waits = leases.flatMap((lease) => lease.waits.map(({ lock }) => ({ lock, lease: lease.lease }))).filter(({ lock }) => !inner.has(lock));
  return html`<h1 tabindex="-1"><span class="kind">Client</span> <span class="name">${client}</span></h1>
    <${Limited} console=${console} />
    <${Problem} error=${error} />
    ${data && html`<p class="answer">${leases.length
      ? html`It has ${plural(leases.length, 'lease')}, holds ${held ? plural(held, 'lock') : 'no lock'} and waits for ${waits.length ? html`<${Waiting} client=${client} waits=${waits} />` : 'none'}${inner.size > 0 && waits.some(({ lock }) => [...inner].some((it) => nested(it) === lock)) ? ', in a nested run' : ''}.`
      : nothing(console, 'It has no lease now: it holds nothing and waits for nothing.', 'It has no lease that you may see. The leases of others are shown to callers with the verb read for the cluster.')}</p>`}
    ${all.length > 0 && html`<${Holding} client=${client} held=${own} all=${all.map(({ lock }) => lock)} />`}
    ${!console.readsAll && html`<${Visible} client=${client} />`}
    ${data ? !data.whole && html`<p class="note">There are more leases than were searched: this client may have others.</p>` : !error && html`<p class="loading">Loading…</p>`}
    <${Some} of=${leases} most=${LEASES} within=${(cards) => html`<div class="holders">${cards}</div>`} each=${(lease, index) => html`<${LeaseCard} key=${lease.lease} lease=${lease} at=${at} console=${console} open=${index < EXPLAINED} />`} />
    <${Losses} client=${client} />`;
}

export function Lease({ about: id, console }) {
  const { data, at, error } = useResource(`/v1/leases/${name(id)}`, {}, 2000);
  const gone = error && error.reason === 'LEASE_NOT_FOUND';
  return html`<h1 tabindex="-1"><span class="kind">Lease</span> <span class="num">${id}</span></h1>
    ${gone ? html`<p class="answer">${nothing(console, 'This lease does not exist any more: it expired, was revoked, or its client ended it.', 'There is no such lease that you may see: it has ended, or it belongs to a client whose leases you may not read.')}</p>` : html`<${Problem} error=${error} />`}
    ${data && !gone && html`<div class="holders"><${LeaseCard} lease=${data} at=${at} console=${console} open /></div>`}
    ${data && html`<${Losses} client=${data.client} />`}`;
}
