// Signs in: exchanges an API key or token for a session of this browser.

import { html, useEffect, useRef, useState } from '../vendor/htm-preact.js';
import { signIn } from '../api.js';
import { Problem } from '../parts/basic.js';

export function SignIn({ why, done }) {
  const [key, setKey] = useState('');
  const [state, set] = useState({});
  const at = useRef();
  useEffect(() => {
    at.current.focus();
  }, []);
  const submit = async (event) => {
    event.preventDefault();
    set({ busy: true });
    try {
      await signIn(key.trim());
      setKey('');
      done();
    } catch (error) {
      set({ error });
    }
  };
  return html`<main class="signin" id="main"><form onSubmit=${submit}>
    <h1 tabindex="-1">Sign in to this cluster</h1>
    ${why && !state.error && html`<p class="dim">${why}</p>`}
    <label>API key <input ref=${at} type="password" name="key" value=${key} autocomplete="off" spellcheck="false" onInput=${(event) => setKey(event.target.value)} placeholder="tenure_…" /></label>
    <${Problem} error=${state.error} always />
    <div class="buttons"><button class="primary" disabled=${!key.trim() || state.busy}>${state.busy ? 'Signing in…' : 'Sign in'}</button></div>
    <p class="note">The key is exchanged for a session of this browser, which ends after 30 minutes without use, and after 8 hours. It is not kept. With a client certificate that the cluster knows, no key is needed.</p>
  </form></main>`;
}
