// The small parts that every page uses.

import { html, useEffect, useRef, useState } from '../vendor/htm-preact.js';
import { useKnownNow } from '../live.js';
import { href } from '../router.js';
import { count, duration, nested, quoted, utc, when, zone } from '../format.js';

/** A duration that goes on: `ms` long when it was read at `at`. */
export function Age({ ms, at }) {
  const now = useKnownNow();
  if (ms == null) return html`<span class="dim">–</span>`;
  return html`<span class="num" title=${`since ${when(new Date(at - ms))} ${zone()}`}>${duration(ms + Math.max(0, now - at))}</span>`;
}

/** A duration that runs down. */
export function Left({ ms, at }) {
  const now = useKnownNow();
  return html`<span class="num">${duration(Math.max(0, ms - Math.max(0, now - at)))}</span>`;
}

/**
 * A time with its day and zone, and UTC as its tooltip. Where the heading names the zone (`bare`), only another zone.
 */
export function Time({ at, bare }) {
  if (!at) return html`<span class="dim">unknown</span>`;
  const date = new Date(at);
  const own = zone(date);
  return html`<time datetime=${date.toISOString()} title=${utc(date)}>${when(date)}${bare && own === zone() ? '' : html` <span class="zone">${own}</span>`}</time>`;
}

/** The heading of a column of times, with their zone. */
export const TimeHead = ({ label }) => html`<th>${label} <span class="zone">${zone()}</span></th>`;

/** A lock; `by` is its holder. */
export function LockLink({ lock, part, by }) {
  const outer = nested(lock);
  const text = outer ? html`<span class="dim">nested run${by ? ` of ${by}` : ''}: </span>${outer}` : lock;
  return html`<a class="name" href=${href('lock', lock)} title=${lock}>${part ?? text}</a>`;
}

/** Who is at the end of a chain of waits. */
export function InTheEnd({ end: { client, lock } }) {
  return html`<${ClientLink} client=${client} />, ${nested(lock) ? 'in a nested run' : html`which holds <${LockLink} lock=${lock} />`}`;
}

export function ClientLink({ client }) {
  if (!client) return html`<span class="dim">–</span>`;
  return html`<a class="name" href=${href('client', client)} title=${client}>${client}</a>`;
}

export function LeaseLink({ lease }) {
  return html`<a class="num" href=${href('lease', lease)} title=${`lease ${lease}`}>${lease.slice(0, 8)}…</a>`;
}

const STATES = {
  held: ['ok', 'held', 'A lease holds it and renews.'],
  doubtful: ['warn', 'renewal overdue', 'No renewal for longer than half of the ttl: late, not lost.'],
  cooling: ['warn', 'revoking', 'Taken away, and not free yet: the holder has to confirm that it has stopped, or its lease would have to end.'],
  delayed: ['warn', 'lock-delay', 'Its lock-delay runs after an end that the holder did not ask for.'],
  resting: ['idle', 'resting', 'Released. Not granted again before its min hold since the grant is over.'],
  drained: ['warn', 'drained', 'Closed to new holders until it is opened again.'],
  vacant: ['idle', 'free', 'It has no holder.'],
};

export function State({ state }) {
  const [level, word, title] = STATES[state] || ['idle', state, ''];
  return html`<span class=${`badge ${level}`} title=${title}>${word}</span>`;
}

export function Badge({ level = 'idle', children, title }) {
  return html`<span class=${`badge ${level}`} title=${title}>${children}</span>`;
}

/** What a place in several queues is enough for. */
export function Choice({ of: { any, pool, locks } }) {
  if (!any && !pool) return null;
  return html` <span class="dim" title=${`It waits for each of these and gets the first that is free for it: ${locks.join(', ')}`}>for ${pool ? html`any slot of the pool <code>${pool}</code>` : `any of ${locks.length} locks`}</span>`;
}

/** How much of a ttl is left: runs down until the next renewal is seen. */
export function TtlBar({ ttl, left, at, label }) {
  const now = useKnownNow();
  const rest = Math.max(0, left - Math.max(0, now - at));
  const part = ttl ? Math.min(1, rest / ttl) : 0;
  const level = part > 0.5 ? 'ok' : part > 0.25 ? 'warn' : 'bad';
  return html`<div class="ttl" role="meter" aria-label=${label} aria-valuemin="0" aria-valuemax=${ttl}
    aria-valuenow=${Math.round(rest)} aria-valuetext=${`${duration(rest)} of ${duration(ttl)} left`}>
    <div class=${`fill ${level}`} style=${{ transform: `scaleX(${part})` }}></div>
  </div>`;
}

// Where the CLI asks by itself.
const DEFAULT_HOSTS = new Set(['127.0.0.1:7450', 'localhost:7450']);
const ADDRESS = DEFAULT_HOSTS.has(location.host) ? [] : ['--addr', location.host];

/** A command of the CLI for what is shown, to copy; `work` is what it runs. */
export function Command({ words, work = [] }) {
  const asks = words[1] !== 'help';
  const all = [...words, ...(asks ? ADDRESS : []), ...(work.length ? [{ raw: '--' }, ...work] : [])];
  const text = all.map((word) => (word.raw !== undefined ? word.raw : quoted(word))).join(' ');
  const [copied, set] = useState(false);
  const copy = async () => {
    try {
      await navigator.clipboard.writeText(text);
      set(true);
      setTimeout(() => set(false), 1500);
    } catch {
      // Without a secure context there is no clipboard.
      set(false);
    }
  };
  return html`<div class="command"><code>${text}</code>
    <button class="quiet" onClick=${copy} aria-label=${`Copy: ${text}`}>${copied ? 'Copied' : 'Copy'}</button></div>`;
}

const sentence = (text) => `${text[0].toUpperCase()}${text.slice(1)}.`;

/**
 * A refusal or failure, in the member's own words. That the member does not answer is said once, across the page; an act
 * says it where it was asked for (`always`).
 */
export function Problem({ error, what, instead, always }) {
  if (!error || (error.reason === 'UNREACHABLE' && !always)) return null;
  const next = error.reason === 'PERMISSION_DENIED' && instead ? instead : error.next && sentence(error.next);
  return html`<div class="problem" role="alert"><strong>${sentence(what ? `${what}: ${error.message}` : error.message)}</strong>
    ${next && html`<span> ${next}</span>`}</div>`;
}

/** What a caller may do that may not read the past of everything. */
export const ONE_PAST = 'The past of all locks is shown to callers with the verb read for the cluster. Choose a prefix or a lock that you may read.';

/** How long after the last key a filter is applied. */
const TYPED_MS = 250;

/**
 * A filter that is typed, applied soon after the last key; with `atEnd` with Enter or when the field is left.
 */
export function TextFilter({ label, name, value = '', apply, atEnd, placeholder, pattern }) {
  const [text, set] = useState(value);
  const applied = useRef(value);
  const late = useRef();
  useEffect(() => {
    if (value !== applied.current) set(value);
    applied.current = value;
  }, [value]);
  useEffect(() => () => clearTimeout(late.current), []);
  const change = (next) => {
    clearTimeout(late.current);
    applied.current = next;
    apply(next);
  };
  const typed = (event) => {
    const next = event.target.value;
    set(next);
    clearTimeout(late.current);
    if (!atEnd) late.current = setTimeout(() => change(next), TYPED_MS);
  };
  return html`<label>${label} <input name=${name} value=${text} placeholder=${placeholder} pattern=${pattern} spellcheck="false" autocomplete="off"
    onInput=${typed} onChange=${(event) => event.target.value !== applied.current && change(event.target.value)} /></label>`;
}

/** What an empty list says, by whether the caller sees everything. */
export const nothing = (console, all, visible) => (console.readsAll ? all : visible);

/** Says that there may be more than is shown. */
export function Limited({ console }) {
  if (console.readsAll) return null;
  return html`<p class="note limited">You see only what your roles let you read. There may be other locks, holders and waiters. <a href=${href('access')}>Access</a></p>`;
}

/** The beginning of a text that may be long; all of it for a pointer. */
export function Brief({ text, most = 160 }) {
  if (!text) return null;
  return text.length > most ? html`<span title=${text.slice(0, 4000)}>${text.slice(0, most)}…</span>` : html`<span>${text}</span>`;
}

/** Shows what lies before what was read. */
export function Further({ further, reading }) {
  if (!further) return null;
  return html`<p class="note">There may be more before. <button class="quiet" disabled=${reading} onClick=${further}>${reading ? 'Looking…' : 'Look further back'}</button></p>`;
}

/** This page at another member. */
export const elsewhere = (address) => `${location.protocol}//${address}/${location.hash}`;

/** The first of some things, and a button for the others. */
export function Some({ of: list, most, each, within = (rows) => rows }) {
  const [shown, show] = useState(most);
  const left = list.length - shown;
  return html`${within(list.slice(0, shown).map(each))}
    ${left > 0 && html`<p class="note">${count(shown)} of ${count(list.length)} are shown. <button class="quiet" onClick=${() => show(shown + most)}>Show ${count(Math.min(most, left))} more</button></p>`}`;
}

export function Empty({ children }) {
  return html`<p class="empty">${children}</p>`;
}

/** A heading with what belongs to it. */
export function Panel({ title, note, aside, children, id }) {
  return html`<section class="panel" aria-labelledby=${id}>
    <header><h2 id=${id} tabindex="-1">${title}</h2>${note && html`<span class="note">${note}</span>`}
    ${aside && html`<span class="aside">${aside}</span>`}</header>
    ${children}
  </section>`;
}

export function Field({ label, children }) {
  return html`<div class="field"><dt>${label}</dt><dd>${children}</dd></div>`;
}
