// Starts the console: the frame around the pages, who is signed in, and whether what is shown is up to date.

import { html, render, useEffect, useRef, useState } from './vendor/htm-preact.js';
import { actsAs, can, forgetPermissions, get, isAnswer, onSignedOut, signOut } from './api.js';
import { freshness, store, useNow, useStore } from './live.js';
import { leasesOf } from './leases.js';
import { go, href, useRoute } from './router.js';
import { duration } from './format.js';
import { OpenDialog } from './acts.js';
import { elsewhere } from './parts/basic.js';
import { Found, Now } from './pages/now.js';
import { Lock } from './pages/lock.js';
import { Client, Lease } from './pages/client.js';
import { Timeline } from './pages/timeline.js';
import { Stuck } from './pages/stuck.js';
import { Members } from './pages/members.js';
import { Elections } from './pages/elections.js';
import { Keys } from './pages/keys.js';
import { Access } from './pages/access.js';
import { Audit } from './pages/audit.js';
import { SignIn } from './pages/signin.js';

const PAGES = { now: Now, search: Found, lock: Lock, client: Client, lease: Lease, timeline: Timeline, stuck: Stuck, members: Members, elections: Elections, keys: Keys, access: Access, audit: Audit };
const MENU = [['now', 'Now'], ['stuck', 'Stuck and lost'], ['timeline', 'Timeline'], ['elections', 'Elections'], ['keys', 'Keys'], ['members', 'Members'], ['access', 'Access'], ['audit', 'Audit']];
/** A stream that resumes at once is no reason to worry anyone. */
const PATIENCE_MS = 1500;

/** Whether what is shown is up to date, and if not, since when and why. */
function Mark() {
  const state = useStore(freshness);
  const now = useNow();
  const age = state.live ? 0 : now - state.since;
  const stale = !state.live && age > PATIENCE_MS;
  return html`<span class=${`mark ${stale ? 'stale' : 'live'}`} role="status">
    <span class=${`dot ${stale ? 'bad' : 'ok'}`} aria-hidden="true"></span>
    ${stale ? html`<span>Stale: last news ${duration(age)} ago</span>` : 'Live'}</span>`;
}

/** The members, as last listed: where else to look. */
const members = store([]);
const MEMBERS_MS = 60_000;

function useMembers(console) {
  useEffect(() => {
    if (!console) return undefined;
    const look = () => get('/v1/cluster').then((status) => members.set(status.members), () => undefined);
    look();
    const timer = setInterval(() => document.hidden || look(), MEMBERS_MS);
    return () => clearInterval(timer);
  }, [Boolean(console)]);
}

/** Says across the page that it may be out of date, and which other members can show the same. */
function StaleBanner({ console }) {
  const state = useStore(freshness);
  const now = useNow();
  const others = useStore(members).filter((member) => member.name !== console.member && member.client_address);
  if (state.live || now - state.since <= PATIENCE_MS) return null;
  return html`<div class="banner" role="alert">What is shown is from ${duration(now - state.since)} ago and may have changed: ${state.why}. Trying again.
    ${others.length > 0 && html`<div class="others">The same page at another member: ${others.map((member) => html`<a key=${member.member_id} href=${elsewhere(member.client_address)}>${member.name || member.member_id} (${member.client_address})</a> `)}</div>`}</div>`;
}

/** How many pages of leases are searched for a client of the very name. */
const SEEK_PAGES = 3;

/** Finds the very lock, client or lease of a name, and shows a page of what is like it otherwise. */
async function seek(wanted) {
  if (/^\d{15,20}$/.test(wanted)) return go('lease', wanted);
  const exact = await get('/v1/locks', { prefix: wanted, limit: 1, stale: true }).catch(() => undefined);
  if (exact && exact.locks[0] && exact.locks[0].lock === wanted) return go('lock', wanted);
  const leases = await leasesOf(wanted, { pages: SEEK_PAGES, enough: 1 }).catch(() => undefined);
  if (leases && leases.found.length > 0) return go('client', wanted);
  return go('search', wanted);
}

function Search() {
  const at = useRef();
  const [text, set] = useState('');
  useEffect(() => {
    const keyed = (event) => {
      const typing = /^(INPUT|SELECT|TEXTAREA)$/.test(event.target.tagName) || document.querySelector('dialog[open]');
      if (event.key === '/' && !typing && !event.ctrlKey && !event.metaKey) {
        event.preventDefault();
        at.current.focus();
      }
    };
    addEventListener('keydown', keyed);
    return () => removeEventListener('keydown', keyed);
  }, []);
  const submit = (event) => {
    event.preventDefault();
    const wanted = text.trim();
    if (!wanted) return;
    set('');
    seek(wanted);
  };
  return html`<form class="search" role="search" aria-label="Go to" onSubmit=${submit}>
    <input ref=${at} value=${text} onInput=${(event) => set(event.target.value)} aria-label="Go to a lock or client, or search" placeholder="Lock, client or a part of its name ( / )" spellcheck="false" autocomplete="off" /></form>`;
}

const THEMES = ['auto', 'light', 'dark'];
function Theme() {
  const [theme, set] = useState(() => {
    try {
      return localStorage.getItem('tenure-theme') || 'auto';
    } catch {
      return 'auto';
    }
  });
  useEffect(() => {
    document.documentElement.dataset.theme = theme;
    try {
      localStorage.setItem('tenure-theme', theme);
    } catch {
      // The choice lasts as long as the page.
    }
  }, [theme]);
  return html`<button class="quiet" onClick=${() => set(THEMES[(THEMES.indexOf(theme) + 1) % 3])} aria-label=${`Theme: ${theme}. Change`}>${{ auto: '◐', light: '☀', dark: '☾' }[theme]}</button>`;
}

// Whether the caller may read everything.
const readsEverything = () =>
  can('read', '').catch((error) => {
    if (isAnswer(error) && error.status !== 401) return false;
    throw error;
  });

function App() {
  const route = useRoute();
  const [session, set] = useState({});
  const load = async () => {
    try {
      const console = await get('/v1/console');
      actsAs(console.principal);
      const readsAll = !console.identity || (await readsEverything());
      set({ console: { ...console, readsAll, readAt: Date.now() } });
    } catch (error) {
      set((before) => (error.status === 401 ? { out: true } : { ...before, error }));
    }
  };
  useEffect(() => {
    load();
    return onSignedOut((error) => set((before) => ({ out: true, why: before.console ? error.message : '' })));
  }, []);
  useEffect(() => {
    if (!session.error || session.console) return undefined;
    const timer = setTimeout(load, 2000);
    return () => clearTimeout(timer);
  }, [session.error]);
  useMembers(session.console);
  const first = useRef(true);
  useEffect(() => {
    const about = route.about ? `${route.about} · ` : '';
    document.title = `${about}${(MENU.find(([page]) => page === route.page) || [0, route.page[0].toUpperCase() + route.page.slice(1)])[1]} · Tenure`;
    if (!first.current) {
      const heading = document.querySelector('main h1');
      if (heading) heading.focus();
      scrollTo(0, 0);
    }
    first.current = false;
  }, [route.page, route.about]);
  if (session.out) return html`<${SignIn} why=${session.why} done=${() => { forgetPermissions(); load(); }} />`;
  const { console } = session;
  if (!console) return html`<main id="main" class="signin"><p class="loading">${session.error ? `${session.error.message}; trying again` : 'Loading the console…'}</p></main>`;
  const Page = PAGES[route.page];
  const leave = async () => {
    await signOut().catch(() => undefined);
    forgetPermissions();
    set({ out: true });
  };
  return html`<a class="skip" href="#main" onClick=${(event) => { event.preventDefault(); document.querySelector('main h1').focus(); }}>Skip to the page</a>
    <header class="top">
      <a class="brand" href=${href('now')}>Tenure</a>
      <span class="where" title=${`cluster ${console.cluster}, member ${console.member || ''}`}>member ${console.member || '–'} <span class="dim">of cluster ${console.cluster.slice(0, 8)}</span></span>
      <${Search} />
      <${Mark} />
      ${console.read_only && html`<span class="badge idle">read-only</span>`}
      <span class="who">${console.principal || ''}</span>
      ${console.signed_in && html`<button class="quiet" onClick=${leave}>Sign out</button>`}
      <${Theme} />
    </header>
    <nav class="menu" aria-label="Pages">${MENU.map(([page, label]) => html`<a key=${page} href=${href(page)} aria-current=${route.page === page ? 'page' : undefined}>${label}</a>`)}</nav>
    <main id="main">
      <${StaleBanner} console=${console} />
      ${Page ? html`<${Page} key=${`${route.page} ${route.about}`} about=${route.about} filters=${route.filters} console=${console} />` : html`<h1 tabindex="-1">There is no such page</h1><p><a href=${href('now')}>Now</a></p>`}
    </main>
    <${OpenDialog} />
    <footer><span>${console.software}</span> <a href="/openapi.json">API</a></footer>`;
}

const app = document.getElementById('app');
app.replaceChildren();
render(html`<${App} />`, app);
