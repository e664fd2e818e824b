// Gives every page an address of its own, in the part that the browser does not send.

import { useEffect, useState } from './vendor/htm-preact.js';

/** The page, what it is about, and its filters. */
export function parse(hash) {
  const [path, query = ''] = hash.replace(/^#\/?/, '').split('?');
  const [page = '', ...rest] = path.split('/');
  let about = rest.join('/');
  try {
    about = decodeURIComponent(about);
  } catch {
    // A malformed address names nothing.
    about = '';
  }
  return { page: page || 'now', about, filters: Object.fromEntries(new URLSearchParams(query)) };
}

/** The address of a page. */
export function href(page, about = '', filters = {}) {
  const query = new URLSearchParams(Object.entries(filters).filter(([, value]) => value !== '' && value != null));
  const text = query.toString();
  return `#/${page}${about ? `/${encodeURIComponent(about)}` : ''}${text ? `?${text}` : ''}`;
}

export function go(page, about, filters) {
  location.hash = href(page, about, filters);
}

/** Changes some filters of the present page without another entry in the browser's history. */
export function refilter(changed) {
  const { page, about, filters } = parse(location.hash);
  history.replaceState(null, '', href(page, about, { ...filters, ...changed }));
  dispatchEvent(new HashChangeEvent('hashchange'));
}

export function useRoute() {
  const [route, set] = useState(() => parse(location.hash));
  useEffect(() => {
    const changed = () => set(parse(location.hash));
    addEventListener('hashchange', changed);
    return () => removeEventListener('hashchange', changed);
  }, []);
  return route;
}
