// Shows locks with the wait of the first in their queues, who holds them, and who is at the end of the chain.

import { html } from '../vendor/htm-preact.js';
import { endOf, explainAll } from '../blocking.js';
import { count, nested } from '../format.js';
import { useRead } from '../live.js';
import { Age, ClientLink, InTheEnd, LockLink } from './basic.js';

/** How often the ends of chains are read again: one request for each lock. */
const EVERY_MS = 5000;
/** A nested run begins to wait for its own lock so long, at most, before it waits for the real one. */
const NESTED_MS = 1000;

/** Locks by how long the first in their queues waits; the lock of a nested run after the one that it waits for. */
export function longestFirst(rows) {
  const waited = new Map([...rows].map(({ lock, first }) => [lock, first ? first.waiting_ms : -1]));
  const rank = ({ lock }) => {
    const own = waited.get(lock);
    const outer = waited.get(nested(lock));
    return outer <= own && own - outer < NESTED_MS ? outer - 0.5 : own;
  };
  return [...rows].sort((one, other) => rank(other) - rank(one));
}

/** Who is at the end of the chain, if that is not the holder. */
function End({ row: { lock, holder }, explained }) {
  const end = explained && endOf(explained);
  // The lock may have another holder since it was explained.
  if (!end || end.lock === lock || !holder || explained.lock.holders[0].token !== holder.token) return null;
  return html`<div class="in-the-end"><span class="dim">in the end </span><${InTheEnd} end=${end} /></div>`;
}

/** One row for each lock, the first `ends` with the end of the chain. Of a lock without `first` it is only known that its wait is `beyond` a bound. */
export function WaitsTable({ rows, at, beyond, ends }) {
  const asked = rows.slice(0, ends).filter((it) => it.holders === 1);
  const { data } = useRead(asked.length ? 'ends of chains' : undefined, (signal, sent) => explainAll(asked.map(({ lock }) => ({ lock })), signal, sent), EVERY_MS);
  return html`<table><thead><tr><th>Lock</th><th>First in the queue</th><th class="numeric">Waits</th><th>Held by</th><th class="numeric spare">For</th><th class="numeric spare">Queue</th></tr></thead>
    <tbody>${rows.map(
      (it) => html`<tr key=${it.lock}><td><${LockLink} lock=${it.lock} by=${it.holder && it.holder.client} /></td>
        <td>${it.first && html`<${ClientLink} client=${it.first.client} />`}</td>
        <td class="numeric">${it.first ? html`<${Age} ms=${it.first.waiting_ms} at=${it.at || at} />` : beyond}</td>
        <td>${it.holder ? html`<${ClientLink} client=${it.holder.client} />` : html`<span class="dim">none</span>`}${it.holders > 1 ? html` <span class="dim">+${it.holders - 1}</span>` : ''}<${End} row=${it} explained=${data && data.get(it.lock)} /></td>
        <td class="numeric spare">${it.holder && html`<${Age} ms=${it.holder.held_ms} at=${it.at || at} />`}</td>
        <td class="numeric spare">${count(it.waiting)}</td></tr>`,
    )}</tbody></table>`;
}
