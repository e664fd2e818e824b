// Shows locks with the wait of the first in their queues, who holds them, and who is at the end of the chain.

import { html } from '../vendor/htm-preact.js';
import { endOf, explainAll } from '../blocking.js';
import { count, nested } from '../format.js';
import { useRead } from '../live.js';
import { Age, ClientLink, InTheEnd, LockLink } from './basic.js';

/** How often the ends of chains are read again: one request for each lock. */
const EVERY_MS = 5000;

/**
 * Locks by how long the first in their queues waits. Not those that a nested run holds: the client that waits for one
 * also waits for the real lock, which is listed.
 */
export function longestFirst(rows) {
  const waited = ({ first }) => (first ? first.waiting_ms : -1);
  return rows.filter(({ lock }) => !nested(lock)).sort((one, other) => waited(other) - waited(one));
}

/** Who is at the end of the chain of a row, if its lock still has that holder. */
function endOfRow({ lock, holder }, known) {
  const explained = known && known.get(lock);
  const end = explained && endOf(explained);
  return end && holder && explained.lock.holders[0].token === holder.token ? end : undefined;
}

/** The client for which most of the rows wait in the end; `all` if there are no others. */
function Most({ rows, known, at, all }) {
  const ends = new Map();
  for (const row of rows) {
    const end = endOfRow(row, known);
    if (!end) continue;
    const key = JSON.stringify([end.client, end.lock]);
    ends.set(key, { end, waits: (ends.get(key)?.waits || 0) + 1 });
  }
  const [most] = [...ends.values()].sort((one, other) => other.waits - one.waits);
  if (!most || most.waits < 2) return null;
  const of = all ? `these ${count(rows.length)}` : `the ${count(rows.length)} longest`;
  const own = rows.find((it) => it.lock === most.end.lock && it.holder);
  return html`<p class="most"><strong>${most.waits === rows.length ? 'All' : count(most.waits)} of ${of} wait in the end for <${ClientLink} client=${most.end.client} /></strong>, which
    holds <${LockLink} lock=${most.end.lock} />${own && html` for <${Age} ms=${own.holder.held_ms} at=${own.at || at} />`}.</p>`;
}

/** One row for each lock, the first `ends` with the end of the chain. A lock without `first` waits `beyond` a bound. */
export function WaitsTable({ rows, at, beyond, ends }) {
  const nearest = rows.slice(0, ends);
  const asked = nearest.filter((it) => it.holders === 1);
  const { data } = useRead(asked.length ? 'ends of chains' : undefined, (signal, sent) => explainAll(asked.map(({ lock }) => ({ lock })), signal, sent), EVERY_MS);
  return html`<${Most} rows=${nearest} known=${data} at=${at} all=${nearest.length === rows.length} />
    <div class="scroll" tabindex="0" role="group" aria-label="Waits"><table class="stack"><thead><tr><th>Lock</th><th>First in the queue</th><th class="numeric">Waits for</th><th>Held by</th><th class="numeric spare">Held for</th><th class="numeric spare">Queue</th></tr></thead>
    <tbody>${rows.map((it) => {
      const end = endOfRow(it, data);
      return html`<tr key=${it.lock}><td class="key" data-label="Lock"><${LockLink} lock=${it.lock} by=${it.holder && it.holder.client} /></td>
        <td class="key" data-label="First in queue">${it.first && html`<${ClientLink} client=${it.first.client} />`}</td>
        <td class="numeric" data-label="Waits for">${it.first ? html`<${Age} ms=${it.first.waiting_ms} at=${it.at || at} />` : beyond}</td>
        <td class="by" data-label="Held by"><div>${it.holder ? html`<${ClientLink} client=${it.holder.client} />` : html`<span class="dim">none</span>`}${it.holders > 1 ? html` <span class="dim">+${it.holders - 1}</span>` : ''}${end && end.lock !== it.lock && html`<div class="in-the-end"><span class="dim">in the end </span><${InTheEnd} end=${end} /></div>`}</div></td>
        <td class="numeric spare" data-label="Held for">${it.holder && html`<${Age} ms=${it.holder.held_ms} at=${it.at || at} />`}</td>
        <td class="numeric spare" data-label="Queue">${count(it.waiting)}</td></tr>`;
    })}</tbody></table></div>`;
}
