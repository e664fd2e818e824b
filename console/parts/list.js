// Lists of any length: only the rows in sight exist, and what is not there yet is asked for page by page.

import { html, useEffect, useLayoutEffect, useRef, useState } from '../vendor/htm-preact.js';
import { get, isAnswer } from '../api.js';
import { AGAIN_MS } from '../live.js';

const ROW = 32;
/** Where a column wraps on a narrow screen. */
const TALL = 68;
const BEYOND = 12;
/** Rows of the first page, which is read again whenever something changes. */
const FIRST_PAGE = 100;

const narrow = matchMedia('(max-width: 48rem)');
const fewer = new WeakMap();

// On a narrow screen only the columns that have a width for it, as `slim` has them.
function useColumns(all) {
  const [isNarrow, set] = useState(narrow.matches);
  useEffect(() => {
    const changed = () => set(narrow.matches);
    narrow.addEventListener('change', changed);
    return () => narrow.removeEventListener('change', changed);
  }, []);
  if (!isNarrow || !all.some((column) => column.narrow)) return all;
  if (!fewer.has(all)) fewer.set(all, all.filter((column) => column.narrow).map((column) => ({ ...column, width: column.narrow, ...column.slim })));
  return fewer.get(all);
}

/**
 * A table with columns `{ label, width, narrow, cell, numeric }`. Rows keep their elements as long as their key is in
 * sight, so nothing flickers or loses its focus.
 */
export function List({ rows, columns: wanted, keyOf, label, height, total, more, loading, empty }) {
  const columns = useColumns(wanted);
  const tall = columns.some((column) => column.wraps) ? TALL : ROW;
  const at = useRef();
  const [top, setTop] = useState(0);
  const [seen, setSeen] = useState(height || 600);
  const frame = useRef(0);
  const made = useRef({});
  const scrolled = () => {
    if (frame.current) return;
    frame.current = requestAnimationFrame(() => {
      frame.current = 0;
      if (at.current) setTop(at.current.scrollTop);
    });
  };
  useLayoutEffect(() => {
    const observer = new ResizeObserver(([entry]) => setSeen(entry.contentRect.height || 600));
    observer.observe(at.current);
    return () => {
      observer.disconnect();
      cancelAnimationFrame(frame.current);
    };
  }, []);
  const first = Math.max(0, Math.floor(top / tall) - BEYOND);
  const end = Math.min(rows.length, Math.ceil((top + seen) / tall) + BEYOND);
  useEffect(() => {
    if (more && !loading && end >= rows.length - 100) more();
  }, [end, rows.length, Boolean(more), loading]);
  const template = columns.map((column) => column.width || '1fr').join(' ');
  // A row that is the same as before is not compared again.
  const before = made.current.columns === columns ? made.current.lines : new Map();
  const now = new Map();
  const lines = [];
  for (let index = first; index < end; index += 1) {
    const row = rows[index];
    const known = before.get(row);
    const line =
      known && known.index === index
        ? known
        : {
            index,
            shown: html`<div role="row" class="row" key=${keyOf(row)} aria-rowindex=${index + 2}
              style=${{ transform: `translateY(${index * tall}px)`, height: `${tall}px`, gridTemplateColumns: template }}>
              ${columns.map(
                (column) => html`<div role="cell" class=${column.wraps ? 'cell wraps' : column.numeric ? 'cell numeric' : 'cell'}>${column.cell(row)}</div>`,
              )}
            </div>`,
          };
    now.set(row, line);
    lines.push(line.shown);
  }
  made.current = { columns, lines: now };
  const rowCount = total ?? (more ? -1 : rows.length + 1);
  return html`<div class="list"><div class="table" role="table" aria-label=${label} aria-rowcount=${rowCount}>
    <div role="rowgroup"><div role="row" class="row head" aria-rowindex="1" style=${{ gridTemplateColumns: template }}>
      ${columns.map(
        (column) => html`<div role="columnheader" class=${column.numeric ? 'cell numeric' : 'cell'}>${column.label}</div>`,
      )}
    </div></div>
    <div class="window" ref=${at} onScroll=${scrolled} tabindex="0" role="rowgroup" aria-label=${`${label}, rows`}
      style=${{ maxHeight: `${height || 600}px` }}>
      <div class="all" role="presentation" style=${{ height: `${rows.length * tall}px` }}>${lines}</div>
    </div></div>
    ${rows.length === 0 && !loading && html`<div class="empty">${empty}</div>`}
    ${(more || (loading && !rows.length)) && html`<p class="note" aria-live="off">${loading ? 'Loading…' : `${rows.length} shown; scroll for more`}</p>`}
  </div>`;
}

/**
 * The pages of a list that the server cuts, in order. `renew` reads a page again that is in sight, in place.
 */
export function usePages(path, params, field, limit = 500) {
  const key = path && JSON.stringify([path, params]);
  const pages = useRef({ key: undefined, list: [] });
  const [, redraw] = useState(0);
  const shown = useRef(true);
  const state = pages.current;
  if (state.key !== key) {
    pages.current = { key, list: [], next: undefined, ended: false, loading: false, error: undefined };
  }
  const mine = pages.current;
  const load = async () => {
    if (!key || mine.loading || mine.ended) return;
    mine.loading = true;
    redraw((n) => n + 1);
    try {
      const after = mine.next;
      const answer = await get(path, { ...params, limit: after ? limit : Math.min(limit, FIRST_PAGE), after });
      mine.error = undefined;
      mine.list.push({ after, rows: answer[field], at: Date.now() });
      mine.next = answer.next;
      mine.ended = !answer.next;
    } catch (error) {
      mine.error = error;
      if (isAnswer(error)) mine.ended = true;
      else await new Promise((resolve) => setTimeout(resolve, AGAIN_MS));
    }
    mine.loading = false;
    if (pages.current !== mine || !shown.current) return;
    redraw((n) => n + 1);
    // Nothing was read: the member could not answer.
    if (mine.error && !mine.ended) load();
  };
  useEffect(() => {
    load();
  }, [key]);
  useEffect(() => () => {
    shown.current = false;
  }, []);
  const renew = async () => {
    const page = mine.list[0];
    if (!key || !page || mine.loading || mine.renewing || document.hidden) return;
    mine.renewing = true;
    try {
      const answer = await get(path, { ...params, limit: Math.min(limit, FIRST_PAGE), after: page.after });
      page.rows = answer[field];
      page.at = Date.now();
      if (mine.list.length === 1) {
        mine.next = answer.next;
        mine.ended = !answer.next;
      }
      mine.error = undefined;
      if (pages.current === mine) redraw((n) => n + 1);
    } catch {
      // The mark at the top says it.
    }
    mine.renewing = false;
  };
  const rows = [];
  const known = new Set();
  for (const page of mine.list) {
    for (const row of page.rows) {
      // After a renewal a row may be in two pages.
      const id = row.lock ?? row.key ?? row.lease ?? row.place;
      if (!known.has(id)) {
        known.add(id);
        rows.push(row.at ? row : Object.assign(row, { at: page.at }));
      }
    }
  }
  return { rows, more: mine.ended ? undefined : load, loading: mine.loading, error: mine.error, renew, ended: mine.ended };
}
