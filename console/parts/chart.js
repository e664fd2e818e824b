// Draws holds as bars on lanes of time, and counts as a line.

import { html, useLayoutEffect, useRef, useState } from '../vendor/htm-preact.js';
import { cause, count, duration, local, LOSSES, nested, when, zone } from '../format.js';

/** The name of a lane is beside it, or above it in a narrow chart. In px. */
const BESIDE = { lane: 26, left: 170, top: 4 };
const ABOVE = { lane: 42, left: 4, top: 20 };
const NARROW = 560;
/** About the width of a letter. */
const LETTER = 6.6;
/** How many lanes are drawn at first, and with each "Show more". */
const LANES = 40;
const STEPS = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 28800, 43200, 86400, 172800, 604800];

function ticks(from, to, room) {
  const label = local(new Date(from), to - from < 600_000).length * LETTER + 24;
  const step = STEPS.find((seconds) => ((to - from) / 1000 / seconds) * label <= room) || 2592000;
  const found = [];
  const zone = new Date(from).getTimezoneOffset() * 60_000;
  for (let at = Math.ceil((from - zone) / (step * 1000)) * step * 1000 + zone; at <= to; at += step * 1000) found.push(at);
  return found;
}

const laneOf = (hold) => hold.lock + (hold.slot != null ? ` #${hold.slot}` : '');

// The lanes, those with the most holds first.
function byBusiest(holds) {
  const counts = new Map();
  for (const hold of holds) counts.set(laneOf(hold), (counts.get(laneOf(hold)) || 0) + 1);
  const names = new Intl.Collator('en', { numeric: true });
  return [...counts.keys()].sort((one, other) => counts.get(other) - counts.get(one) || names.compare(one, other));
}

// The width of an element, in the same pixels as its text.
function useWidth(at) {
  const [width, set] = useState(1000);
  useLayoutEffect(() => {
    const observer = new ResizeObserver(([entry]) => set(Math.max(240, Math.round(entry.contentRect.width))));
    observer.observe(at.current);
    return () => observer.disconnect();
  }, []);
  return width;
}

/**
 * The holds of some locks between two times. Zooms with the wheel and with + and -, moves with the arrow keys. Tab
 * reaches one hold; the arrow keys go from there to the others. What is before the records `begins` is shaded.
 */
export function Lanes({ holds, begins, from, to, moved, chosen, choose, label, mark }) {
  const at = useRef();
  const drag = useRef();
  const [shown, show] = useState(LANES);
  const [reached, reach] = useState();
  const width = useWidth(at);
  const { lane: tall, left: edge, top } = width < NARROW ? ABOVE : BESIDE;
  const room = width - edge;
  const all = byBusiest(holds);
  const lanes = all.slice(0, shown);
  const index = new Map(lanes.map((lane, place) => [lane, place]));
  const bars = holds.filter((hold) => index.has(laneOf(hold)) && (hold.to ?? to) >= from && (hold.from ?? from) <= to);
  const idOf = (hold) => `${hold.lock} ${hold.token}`;
  const tabbed = bars.some((hold) => idOf(hold) === reached) ? reached : bars.length > 0 && idOf(bars[0]);
  // A tall chart has its times above as well.
  const head = lanes.length > 10 ? 18 : 0;
  const height = head + Math.max(1, lanes.length) * tall + 24;
  const x = (time) => edge + ((time - from) / (to - from)) * room;
  const span = to - from;
  const zoom = (factor, around = 0.5) => {
    const middle = from + span * around;
    moved(Math.round(middle - span * factor * around), Math.round(middle + span * factor * (1 - around)));
  };
  const pan = (part) => moved(Math.round(from + span * part), Math.round(to + span * part));
  // From one hold to the next or the one before.
  const step = (event) => {
    const ways = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 };
    if (!ways[event.key]) return;
    const list = [...at.current.querySelectorAll('.hold')];
    const next = list[list.indexOf(event.target) + ways[event.key]];
    event.preventDefault();
    if (next) next.focus();
  };
  const keyed = (event) => {
    if (event.target.classList.contains('hold')) return step(event);
    const act = { ArrowLeft: () => pan(-0.2), ArrowRight: () => pan(0.2), '+': () => zoom(0.5), '=': () => zoom(0.5), '-': () => zoom(2) }[event.key];
    if (!act || event.target !== event.currentTarget) return undefined;
    event.preventDefault();
    return act();
  };
  const wheel = (event) => {
    if (!event.ctrlKey && !event.shiftKey) return;
    event.preventDefault();
    const box = event.currentTarget.getBoundingClientRect();
    zoom(event.deltaY > 0 ? 1.4 : 0.7, Math.min(1, Math.max(0, (event.clientX - box.left - edge) / room)));
  };
  const down = (event) => {
    drag.current = { x: event.clientX, from, to };
  };
  const move = (event) => {
    if (!drag.current || event.buttons !== 1) return;
    const { x: start, from: was, to: till } = drag.current;
    const shift = ((start - event.clientX) / room) * (till - was);
    if (Math.abs(start - event.clientX) > 3) moved(Math.round(was + shift), Math.round(till + shift));
  };
  const beside = edge === BESIDE.left;
  const letters = Math.floor(((beside ? edge : width) - 12) / LETTER);
  const cut = (text) => (text.length > letters ? `…${text.slice(1 - letters)}` : text);
  const named = (lane) => cut(nested(lane) ? `nested run: ${nested(lane)}` : lane);
  const [begin, end] = [when(new Date(from)), when(new Date(to))];
  return html`<div class="lanes" ref=${at} tabindex="0" role="group" aria-label=${label} onKeyDown=${keyed} onWheel=${wheel}
    onPointerDown=${down} onPointerMove=${move}>
    <div class="controls"><span class="note">${begin} to ${end.split(' ')[0] === begin.split(' ')[0] ? end.split(' ')[1] : end} ${zone(new Date(to))}</span>
      <button class="quiet" onClick=${() => pan(-0.5)} aria-label="Earlier">◀</button>
      <button class="quiet" onClick=${() => zoom(2)} aria-label="Zoom out">−</button>
      <button class="quiet" onClick=${() => zoom(0.5)} aria-label="Zoom in">+</button>
      <button class="quiet" onClick=${() => pan(0.5)} aria-label="Later">▶</button>
    </div>
    <svg viewBox=${`0 0 ${width} ${height}`} role=${bars.length ? 'list' : 'img'} aria-label="Holds">
      ${begins > from && html`<g class="unrecorded"><rect x=${edge} y="0" width=${x(Math.min(begins, to)) - edge} height=${height - 18} />
        <text x=${edge + 6} y=${height - 24}>${x(Math.min(begins, to)) - edge > 90 && 'no records'}</text><title>Nothing is recorded of this time</title></g>`}
      ${ticks(from, to, room).map(
        (time) => html`<g class="tick" key=${time}><line x1=${x(time)} x2=${x(time)} y1=${head} y2=${height - 18} />
          ${[...(head ? [12] : []), height - 4].map((y) => html`<text x=${x(time)} y=${y} text-anchor=${x(time) > width - 44 ? 'end' : 'middle'}>${local(new Date(time), span < 600_000)}</text>`)}</g>`,
      )}
      ${lanes.map(
        (lane, place) => html`<text class="lane" x=${beside ? edge - 8 : edge} y=${head + place * tall + (beside ? 17 : 15)} text-anchor=${beside ? 'end' : 'start'} key=${lane}>
          ${named(lane)}<title>${lane}</title></text>`,
      )}
      ${bars.map((hold) => {
        const left = x(Math.max(from, hold.from ?? from));
        const wide = Math.max(2, x(Math.min(to, hold.to ?? to)) - left);
        const y = head + index.get(laneOf(hold)) * tall + top;
        const lost = LOSSES.has(hold.end);
        const told = `${hold.lock}: ${hold.client || 'unknown'}, token ${hold.token}, ${
          hold.from && (hold.to || hold.now) ? duration((hold.to || hold.now) - hold.from) : 'beginning unknown'
        }, ${hold.end ? cause(hold.end) : 'still held'}`;
        const id = idOf(hold);
        return html`<g key=${id} role="listitem"><g role="button" tabindex=${id === tabbed ? 0 : -1} aria-label=${told} aria-pressed=${chosen === id}
          class=${`hold ${lost ? 'lost' : hold.end ? 'ended' : 'open'} ${chosen === id ? 'chosen' : ''}`} onFocus=${() => reach(id)}
          onClick=${() => choose(id)} onKeyDown=${(event) => (event.key === 'Enter' || event.key === ' ') && (event.preventDefault(), choose(id))}>
          <rect x=${left} y=${y} width=${wide} height="18" rx="3"><title>${told}</title></rect>
          ${wide > 60 && html`<text x=${left + 6} y=${y + 13}>${(hold.client || '').slice(0, Math.floor((wide - 8) / LETTER))}</text>`}
        </g></g>`;
      })}
      ${mark >= from && mark <= to && html`<line class="mark" x1=${x(mark)} x2=${x(mark)} y1="0" y2=${height - 18} />`}
    </svg>
    ${all.length > lanes.length &&
    html`<p class="note">The ${count(lanes.length)} locks with the most holds, of ${count(all.length)}.
      <button class="quiet" onClick=${() => show(shown + LANES)}>Show ${count(Math.min(LANES, all.length - lanes.length))} more</button></p>`}
  </div>`;
}

/** The last values of a number, as a line. */
export function Spark({ values, label }) {
  if (values.length < 2) return html`<svg class="spark" viewBox="0 0 100 20" aria-hidden="true"></svg>`;
  const most = Math.max(...values, 1e-9);
  const points = values.map((value, index) => `${(index / (values.length - 1)) * 100},${19 - (value / most) * 17}`);
  return html`<svg class="spark" viewBox="0 0 100 20" preserveAspectRatio="none" role="img" aria-label=${label}>
    <polyline points=${points.join(' ')} /></svg>`;
}
