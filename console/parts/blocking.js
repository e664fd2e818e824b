// Shows what is in the way of a request or a lock, branch by branch.

import { html, useState } from '../vendor/htm-preact.js';
import { useRead } from '../live.js';
import { BRANCHES, treeOf } from '../blocking.js';
import { count, nested, plural } from '../format.js';
import { Age, ClientLink, Left, LockLink, Problem, State } from './basic.js';

/** How often a tree is read again. */
const EVERY_MS = 5000;

const KINDS = {
  one: () => '',
  all: ({ total }) => html`<span class="dim">all of ${plural(total, 'lock')} at once: </span>`,
  any: ({ total }) => html`<span class="dim">any of ${plural(total, 'lock')}: </span>`,
  pool: ({ pool }) => html`<span class="dim">any slot of the pool <code>${pool}</code>: </span>`,
};

/** What a node says when it has no branches; `refused` for want of permission. */
function End({ node, refused }) {
  if (node.again) return html` <span class="dim">(shown elsewhere in this tree)</span>`;
  if (node.cut) return html` <span class="dim">and further: the tree ends here, because it became too large</span>`;
  if (node.refused) return html` <span class="dim">${refused}</span>`;
  return null;
}

/** What a nested run waits for, if a request waits for its lock. */
function throughNested({ kind, locks: [branch] }) {
  if (kind !== 'one' || !nested(branch.lock) || !branch.holders || branch.holders.length !== 1) return undefined;
  const { requests } = branch.holders[0];
  return requests.length === 1 && requests[0].kind === 'one' && requests[0].locks[0].lock === nested(branch.lock) ? requests[0] : undefined;
}

/** The locks of a request, with who is in the way at each. */
function Request({ node, lead, within }) {
  if (node.kind === undefined) return null;
  const inner = throughNested(node);
  if (inner) return html`<${Request} node=${inner} lead=${lead} within />`;
  const left = node.total - node.locks.length;
  const said = lead ? `${lead}${within ? ', in a nested run,' : ''} for ` : within ? 'in a nested run: ' : '';
  return html`<li>${said && html`<span class="dim">${said}</span>`}${KINDS[node.kind](node)}
    ${node.kind === 'one' && node.locks.length === 1
      ? html`<${LockBranch} node=${node.locks[0]} />`
      : html`<ul>${node.locks.map((branch) => html`<li key=${branch.lock}><${LockBranch} node=${branch} /></li>`)}${left > 0 && html`<li class="dim">and ${plural(left, 'more lock')}</li>`}</ul>`}</li>`;
}

const requests = (node, lead) =>
  (node.requests.length > 0 || node.moreRequests > 0) && html`<ul>${node.requests.map((request) => html`<${Request} key=${request.locks[0].lock} node=${request} lead=${lead} />`)}
    ${node.moreRequests > 0 && html`<li class="dim">and ${plural(node.moreRequests, 'more request')}</li>`}</ul>`;

/** A lock without its name: its holders, and the queue before the request. */
function InTheWay({ node }) {
  const { holders = [], ahead = [], more, moreAhead } = node;
  if (!holders.length && !ahead.length && !(moreAhead > 0)) return null;
  return html`<ul>
    ${holders.map((holder) => html`<li key=${holder.token}><span class="dim">held by </span><${ClientLink} client=${holder.client} /><span class="dim"> for <${Age} ms=${holder.held_ms} at=${node.at} />${holder.slot != null ? `, slot ${holder.slot}` : ''}${holder.mode === 'shared' ? ', shared' : ''}${nested(node.lock) ? ', in a nested run' : ''}</span>${holder.state !== 'held' ? html` <${State} state=${holder.state} />` : ''}<${End} node=${holder} refused="; whether it waits itself is not known: its lease has ended, or you may not see it" />${requests(holder, 'which waits')}</li>`)}
    ${more > 0 && html`<li class="dim">and by ${plural(more, 'more holder')}</li>`}
    ${ahead.map((it) => html`<li key=${it.place}><span class="dim">behind </span><${ClientLink} client=${it.client} /><span class="dim">, ${it.ahead ? `${it.ahead + 1}. in the queue` : 'the first in the queue'}</span>${requests(it, 'which also waits')}</li>`)}
    ${moreAhead > 0 && html`<li class="dim">and behind ${count(moreAhead)} more in the queue</li>`}
  </ul>`;
}

function LockBranch({ node }) {
  const free = node.holders && !node.holders.length;
  return html`<${LockLink} lock=${node.lock} />${free && html` <span class="dim">no holder</span>`}${node.first && html`<span class="dim">; it is next</span>`}
    ${node.drained && html` <span class="dim">below <code>${node.drained.prefix || 'all locks'}</code>, closed to new holders${node.drained.by ? ` by ${node.drained.by}` : ''}</span>`}
    ${node.quiet ? html` <span class="dim">nothing is granted for another <${Left} ms=${node.quiet} at=${node.at} />: the cluster was restored</span>` : ''}
    <${End} node=${node} refused="you may not see this lock" /><${InTheWay} node=${node} />`;
}

/** What is in the way of a request from `requestsOf`; until that is wanted, its locks. */
export function WhyItWaits({ request, open }) {
  const [wanted, want] = useState(open);
  const { lease, place, locks } = request;
  const { data, error } = useRead(wanted ? `why ${place} ${locks.join('\n')}` : undefined, (signal, sent) => treeOf({ lease, place, locks }, signal, sent), EVERY_MS);
  if (data) return html`<ul class="tree"><${Request} node=${data} /></ul>`;
  return html`<div>${locks.slice(0, BRANCHES).map((lock) => html`<${LockLink} key=${lock} lock=${lock} /> `)}${locks.length > BRANCHES && html`<span class="dim">and ${count(locks.length - BRANCHES)} more </span>`}
    ${!wanted ? html`<button class="quiet" onClick=${() => want(true)}>Why it waits</button>` : error ? html`<${Problem} error=${error} />` : html`<span class="dim">Looking…</span>`}</div>`;
}

/** What is in the way at a lock, with what its holders wait for. */
export function WhatIsInTheWay({ lock }) {
  const { data, error } = useRead(`in the way of ${lock}`, (signal, sent) => treeOf({ lock }, signal, sent), EVERY_MS);
  return html`<${Problem} error=${error} />${data ? html`<ul class="tree"><li><${LockBranch} node=${data} /></li></ul>` : !error && html`<p class="loading">Looking…</p>`}`;
}
