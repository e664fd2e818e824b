// What administrators and operators did, and what was denied, as this member recorded it.

import { html } from '../vendor/htm-preact.js';
import { useResource } from '../live.js';
import { refilter } from '../router.js';
import { Badge, Command, Empty, Panel, Problem, TextFilter, Time } from '../parts/basic.js';

const SHOWN = new Set(['time', 'act', 'outcome', 'principal', 'who', 'target', 'from']);

function rest(record) {
  return Object.entries(record).filter(([field]) => !SHOWN.has(field)).map(([field, value]) => `${field} ${typeof value === 'object' ? JSON.stringify(value) : value}`).join(', ');
}

export function Audit({ filters }) {
  const { data, error } = useResource('/v1/audit', { last: 500 }, 5000);
  const wanted = (filters.text || '').toLowerCase();
  const records = data ? [...data.records].reverse().filter((record) => !wanted || JSON.stringify(record).toLowerCase().includes(wanted)) : [];
  return html`<h1 tabindex="-1">Audit</h1>
    <form class="filters" role="search" aria-label="Filter records" onSubmit=${(event) => event.preventDefault()}>
      <${TextFilter} label="Contains" name="text" value=${filters.text} apply=${(text) => refilter({ text })} /></form>
    <${Problem} error=${error} />
    ${data && html`<${Panel} title="Newest records of this member" id="records" note="acts are recorded by every member; denied calls by the one that was asked" aside=${html`<${Command} words=${['tenure', 'audit']} />`}>
      ${records.length ? html`<div class="scroll" tabindex="0" role="group" aria-label="Records"><table><thead><tr><th>When</th><th>Act</th><th>Who</th><th>Target</th><th>Outcome</th><th>More</th></tr></thead><tbody>
        ${records.slice(0, 300).map((record, index) => html`<tr key=${`${record.time} ${index}`}><td><${Time} at=${record.time} /></td><td>${record.act}</td><td>${record.principal || record.who || ''}${record.from ? html` <span class="dim">${record.from}</span>` : ''}</td><td>${record.target || ''}</td>
          <td>${record.outcome === 'done' ? 'done' : html`<${Badge} level="warn">${record.reason || record.outcome}<//>`}</td><td class="dim">${rest(record)}</td></tr>`)}</tbody></table></div>` : html`<${Empty}>No record.<//>`}
    <//>`}`;
}
