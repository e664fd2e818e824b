// Finds every lease of a client, and every lock that it holds. The lists of the API are cut into pages and find names
// that begin like the client's, so what is the client's own may be on any page.

import { get } from './api.js';

/** How many pages are read. */
const PAGES_MAX = 50;
const PAGE = 1000;

// Every entry of a list that passes, until `enough` have been found.
async function all(path, params, field, passes, { signal, sent, pages = PAGES_MAX, enough = Infinity }) {
  const found = [];
  let after;
  for (let page = 1; ; page += 1) {
    // What is read after the first page is as new as the first.
    const answer = await get(path, { ...params, limit: PAGE, after, ...(after ? { stale: true } : {}) }, signal, sent);
    found.push(...answer[field].filter(passes));
    after = answer.next;
    if (!after || page === pages || found.length >= enough) return { found, pages: page, whole: !after };
  }
}

/** The leases of a client: `{ found, pages, whole }`. It is whole if all leases were searched. */
export function leasesOf(client, reading) {
  return all('/v1/leases', { client }, 'leases', (lease) => lease.client === client, reading);
}

/** The locks that a client holds or perhaps awaits, as far as the caller may read them. */
export function locksOf(client, reading) {
  return all('/v1/locks', { client, stale: true }, 'locks', () => true, reading);
}
