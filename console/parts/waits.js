// Shows locks with the wait of the first in their queues, and who holds them.

import { html } from '../vendor/htm-preact.js';
import { count } from '../format.js';
import { Age, ClientLink, LockLink } from './basic.js';

/** One row for each lock. Of a lock without `first` it is only known that its wait is `beyond` a bound. */
export function WaitsTable({ rows, at, beyond }) {
  return html`<table><thead><tr><th>Lock</th><th>First in the queue</th><th class="numeric">Waits</th><th>Held by</th><th class="numeric spare">For</th><th class="numeric spare">Queue</th></tr></thead>
    <tbody>${rows.map(
      (it) => html`<tr key=${it.lock}><td><${LockLink} lock=${it.lock} /></td>
        <td>${it.first && html`<${ClientLink} client=${it.first.client} />`}</td>
        <td class="numeric">${it.first ? html`<${Age} ms=${it.first.waiting_ms} at=${it.at || at} />` : beyond}</td>
        <td>${it.holder ? html`<${ClientLink} client=${it.holder.client} />` : html`<span class="dim">none</span>`}${it.holders > 1 ? html` <span class="dim">+${it.holders - 1}</span>` : ''}</td>
        <td class="numeric spare">${it.holder && html`<${Age} ms=${it.holder.held_ms} at=${it.at || at} />`}</td>
        <td class="numeric spare">${count(it.waiting)}</td></tr>`,
    )}</tbody></table>`;
}
