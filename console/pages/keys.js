// The keys of the built-in store, without a way to change them.

import { html } from '../vendor/htm-preact.js';
import { refilter } from '../router.js';
import { content } from '../format.js';
import { Command, LeaseLink, nothing, Panel, Problem, TextFilter } from '../parts/basic.js';
import { List, usePages } from '../parts/list.js';

const COLUMNS = [
  { label: 'Key', width: 'minmax(12rem, 2fr)', narrow: 'minmax(0, 1fr)', cell: (it) => html`<span class="name" title=${it.key}>${it.key}</span>` },
  { label: 'Value', width: 'minmax(12rem, 3fr)', narrow: 'minmax(0, 1fr)', cell: (it) => html`<span title=${content(it.value, it.value_base64).slice(0, 2000)}>${content(it.value, it.value_base64).slice(0, 200)}</span>` },
  { label: 'Version', width: '5rem', numeric: true, cell: (it) => it.version },
  { label: 'Written at revision', width: '9rem', numeric: true, cell: (it) => it.modified },
  { label: 'Ends with lease', width: '8rem', cell: (it) => (it.lease ? html`<${LeaseLink} lease=${it.lease} />` : '') },
];

export function Keys({ filters, console }) {
  const { rows, more, loading, error } = usePages('/v1/keys', { prefix: filters.prefix, stale: true }, 'keys', 200);
  return html`<h1 tabindex="-1">Keys</h1>
    <form class="filters" role="search" aria-label="Filter keys" onSubmit=${(event) => event.preventDefault()}>
      <${TextFilter} label="Begins with" name="prefix" value=${filters.prefix} apply=${(prefix) => refilter({ prefix })} /></form>
    <${Problem} error=${error} />
    <${Panel} title="Keys" id="keys" aside=${html`<${Command} words=${['tenure', 'key', 'list', ...(filters.prefix ? ['--prefix', filters.prefix] : [])]} />`}>
      <${List} rows=${rows} columns=${COLUMNS} keyOf=${(it) => it.key} label="Keys" more=${more} loading=${loading} empty=${filters.prefix ? nothing(console, 'No key begins so.', 'No key that you may see begins so.') : nothing(console, 'There is no key.', 'There is no key that you may see.')} />
    <//>`;
}
