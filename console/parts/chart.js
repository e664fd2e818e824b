// Draws holds as bars on lanes of time, and counts as a line.

import { html, useRef } from '../vendor/htm-preact.js';
import { cause, duration, local, LOSSES } from '../format.js';

const LANE = 26;
const LEFT = 170;
const STEPS = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 28800, 43200, 86400, 172800, 604800];

function ticks(from, to, room) {
  const step = STEPS.find((seconds) => ((to - from) / 1000 / seconds) * 80 <= room) || 2592000;
  const found = [];
  const zone = new Date(from).getTimezoneOffset() * 60_000;
  for (let at = Math.ceil((from - zone) / (step * 1000)) * step * 1000 + zone; at <= to; at += step * 1000) found.push(at);
  return found;
}

/** The holds of some locks between two times. Zooms with the wheel and with + and -, moves with the arrow keys. */
export function Lanes({ holds, from, to, moved, chosen, choose, label, mark }) {
  const drag = useRef();
  const width = 1000;
  const room = width - LEFT;
  const locks = [...new Set(holds.map((hold) => hold.lock + (hold.slot != null ? ` #${hold.slot}` : '')))].sort();
  const lane = new Map(locks.map((lock, index) => [lock, index]));
  const height = Math.max(1, locks.length) * LANE + 24;
  const x = (time) => LEFT + ((time - from) / (to - from)) * room;
  const span = to - from;
  const zoom = (factor, around = 0.5) => {
    const middle = from + span * around;
    moved(Math.round(middle - span * factor * around), Math.round(middle + span * factor * (1 - around)));
  };
  const pan = (part) => moved(Math.round(from + span * part), Math.round(to + span * part));
  const keyed = (event) => {
    const act = { ArrowLeft: () => pan(-0.2), ArrowRight: () => pan(0.2), '+': () => zoom(0.5), '=': () => zoom(0.5), '-': () => zoom(2) }[event.key];
    if (!act || event.target !== event.currentTarget) return;
    event.preventDefault();
    act();
  };
  const wheel = (event) => {
    if (!event.ctrlKey && !event.shiftKey) return;
    event.preventDefault();
    const box = event.currentTarget.getBoundingClientRect();
    zoom(event.deltaY > 0 ? 1.4 : 0.7, Math.min(1, Math.max(0, ((event.clientX - box.left) / box.width - LEFT / width) / (room / width))));
  };
  const down = (event) => {
    drag.current = { x: event.clientX, from, to, width: event.currentTarget.getBoundingClientRect().width };
  };
  const move = (event) => {
    if (!drag.current || event.buttons !== 1) return;
    const { x: start, from: was, to: till, width: shown } = drag.current;
    const shift = ((start - event.clientX) / (shown * (room / width))) * (till - was);
    if (Math.abs(start - event.clientX) > 3) moved(Math.round(was + shift), Math.round(till + shift));
  };
  return html`<div class="lanes" tabindex="0" role="group" aria-label=${label} onKeyDown=${keyed} onWheel=${wheel}
    onPointerDown=${down} onPointerMove=${move}>
    <svg viewBox=${`0 0 ${width} ${height}`} role="list" aria-label="Holds">
      ${ticks(from, to, room).map(
        (at) => html`<g class="tick" key=${at}><line x1=${x(at)} x2=${x(at)} y1="0" y2=${height - 18} />
          <text x=${x(at)} y=${height - 4} text-anchor="middle">${local(new Date(at), span < 600_000)}</text></g>`,
      )}
      ${locks.map(
        (lock, index) => html`<text class="lane" x=${LEFT - 8} y=${index * LANE + 17} text-anchor="end" key=${lock}>
          ${lock.length > 24 ? `…${lock.slice(-23)}` : lock}<title>${lock}</title></text>`,
      )}
      ${holds.map((hold) => {
        const begin = Math.max(from, hold.from ?? from);
        const end = Math.min(to, hold.to ?? to);
        if (end < from || begin > to) return null;
        const left = x(begin);
        const wide = Math.max(2, x(end) - left);
        const y = lane.get(hold.lock + (hold.slot != null ? ` #${hold.slot}` : '')) * LANE + 4;
        const lost = LOSSES.has(hold.end);
        const told = `${hold.lock}: ${hold.client || 'unknown'}, token ${hold.token}, ${
          hold.from && (hold.to || hold.now) ? duration((hold.to || hold.now) - hold.from) : 'beginning unknown'
        }, ${hold.end ? cause(hold.end) : 'still held'}`;
        const id = `${hold.lock} ${hold.token}`;
        return html`<g key=${id} role="listitem"><g role="button" tabindex="0" aria-label=${told} aria-pressed=${chosen === id}
          class=${`hold ${lost ? 'lost' : hold.end ? 'ended' : 'open'} ${chosen === id ? 'chosen' : ''}`}
          onClick=${() => choose(id)} onKeyDown=${(event) => (event.key === 'Enter' || event.key === ' ') && (event.preventDefault(), choose(id))}>
          <rect x=${left} y=${y} width=${wide} height=${LANE - 8} rx="3"><title>${told}</title></rect>
          ${wide > 60 && html`<text x=${left + 6} y=${y + 13}>${(hold.client || '').slice(0, Math.floor(wide / 7))}</text>`}
        </g></g>`;
      })}
      ${mark >= from && mark <= to && html`<line class="mark" x1=${x(mark)} x2=${x(mark)} y1="0" y2=${height - 18} />`}
    </svg>
    <div class="controls">
      <button class="quiet" onClick=${() => pan(-0.5)} aria-label="Earlier">◀</button>
      <button class="quiet" onClick=${() => zoom(2)} aria-label="Zoom out">−</button>
      <button class="quiet" onClick=${() => zoom(0.5)} aria-label="Zoom in">+</button>
      <button class="quiet" onClick=${() => pan(0.5)} aria-label="Later">▶</button>
    </div>
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
