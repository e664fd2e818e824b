// What administrators and operators did, and what was denied, as this member recorded it.

import { html } from '../vendor/htm-preact.js';
import { useResource } from '../live.js';
import { refilter } from '../router.js';
import { Badge, Command, Empty, Panel, Problem, TextFilter, Time, TimeHead } from '../parts/basic.js';

/** What was done, where the record's own word does not say it. */
const ACTS = {
  force: 'lock taken away',
  revoke: 'lease revoked',
  compact: 'history compacted',
  set_access: 'access rules changed',
  set_limits: 'limits changed',
  raise_level: 'feature level raised',
  drain: 'prefix closed to new holders',
  undrain: 'prefix opened again',
  resize: 'number of slots set',
  denied: 'call denied',
  start: 'member started',
  gap: 'records are missing',
};

const SHOWN = new Set(['time', 'act', 'outcome', 'principal', 'who', 'target', 'from', 'why']);

/** Who did it, and from where. */
function by({ principal, who, from }) {
  if (!principal && !who && !from) return '';
  return html`<div>${principal || who || ''}${from ? html` <span class="dim">${from}</span>` : ''}</div>`;
}

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
    ${data && html`<${Panel} title="What was done" id="records" note="the newest records of this member; denied calls are recorded by the member that was asked" aside=${html`<${Command} words=${['tenure', 'audit']} />`}>
      ${records.length ? html`<div class="scroll" tabindex="0" role="group" aria-label="Records"><table class="stack"><thead><tr><${TimeHead} label="When" /><th>Act</th><th>By</th><th>Target</th><th>Outcome</th><th>Reason, and more</th></tr></thead><tbody>
        ${records.slice(0, 300).map((record, index) => html`<tr key=${`${record.time} ${index}`}><td data-label="When"><${Time} at=${record.time} bare /></td><td data-label="Act" title=${record.act}>${ACTS[record.act] || record.act.replaceAll('_', ' ')}</td><td data-label="By">${by(record)}</td><td class="end" data-label="Target">${record.target || ''}</td>
          <td data-label="Outcome">${record.outcome === 'done' ? 'done' : html`<${Badge} level="warn">${record.reason || record.outcome}<//>`}</td><td class="end" data-label="Reason"><div>${record.why ? html`“${record.why}” ` : ''}<span class="dim">${rest(record)}</span></div></td></tr>`)}</tbody></table></div>` : html`<${Empty}>No record.<//>`}
    <//>`}`;
}
