// Every election: who leads, since when, with what value, and who would be next.

import { html, useEffect } from '../vendor/htm-preact.js';
import { useStates } from '../streams.js';
import { content, count } from '../format.js';
import { Age, ClientLink, Command, LockLink, nothing, Panel, Problem, State } from '../parts/basic.js';
import { List, usePages } from '../parts/list.js';

const COLUMNS = [
  { label: 'Election', width: 'minmax(12rem, 2fr)', narrow: 'minmax(0, 1fr)', cell: (it) => html`<${LockLink} lock=${it.lock} />` },
  { label: 'State', width: '8rem', cell: (it) => html`<${State} state=${it.holders.length ? it.holders[0].state : 'vacant'} />` },
  { label: 'Leader', width: 'minmax(9rem, 1.4fr)', narrow: 'minmax(0, 1fr)', cell: (it) => (it.holders.length ? html`<${ClientLink} client=${it.holders[0].client} />` : html`<span class="dim">vacant</span>`) },
  { label: 'Leads for', width: '7rem', narrow: '4.2rem', numeric: true, cell: (it) => it.holders.length > 0 && html`<${Age} ms=${it.holders[0].held_ms} at=${it.at} />` },
  { label: 'Value', width: 'minmax(9rem, 1.6fr)', narrow: 'minmax(0, 1fr)', cell: (it) => it.holders.length > 0 && content(it.holders[0].metadata, it.holders[0].metadata_base64) },
  { label: 'Token', width: '7rem', numeric: true, cell: (it) => it.holders.length > 0 && it.holders[0].token },
  { label: 'Candidates', width: '6rem', numeric: true, cell: (it) => count(it.waiting) },
];

export function Elections({ console }) {
  const { data: overview } = useStates('/v1/overview', { follow: true }, 'overview');
  const { rows, more, loading, error, renew } = usePages('/v1/locks', { election: true, stale: true }, 'locks');
  useEffect(() => {
    renew();
  }, [overview && overview.header.revision]);
  return html`<h1 tabindex="-1">Elections</h1><${Problem} error=${error} />
    <${Panel} title="Elections" id="elections" aside=${html`<${Command} words=${['tenure', 'observe', { raw: 'NAME' }]} />`}>
      <${List} rows=${rows} columns=${COLUMNS} keyOf=${(it) => it.lock} label="Elections" more=${more} loading=${loading} empty=${nothing(console, 'No election has a leader or a candidate.', 'No election that you may see has a leader or a candidate.')} />
    <//>`;
}
