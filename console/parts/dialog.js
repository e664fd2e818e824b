// Asks before something is done: says what will happen, and lets the dangerous be typed.

import { html, useEffect, useRef, useState } from '../vendor/htm-preact.js';
import { Problem } from './basic.js';

/** After so long without an answer the dialog says so. */
const LATE_MS = 5000;

/**
 * A dialog for one act. `effects` says what will happen; `typed` is what has to be typed to go on; `reason` asks for a
 * reason; `run` gets the reason and acts; `done` shows the outcome.
 */
export function ActDialog({ title, effects, typed, reason, fields = [], label, run, done, close }) {
  const at = useRef();
  const [text, setText] = useState('');
  const [why, setWhy] = useState('');
  const [values, setValues] = useState({});
  const [state, set] = useState({ step: 'asks' });
  useEffect(() => {
    at.current.showModal();
  }, []);
  useEffect(() => {
    if (state.step !== 'acts') return undefined;
    const timer = setTimeout(() => set((before) => (before.step === 'acts' ? { ...before, late: true } : before)), LATE_MS);
    return () => clearTimeout(timer);
  }, [state.step]);
  const complete = fields.every((field) => field.optional || (values[field.name] || '').trim());
  const ready = state.step === 'asks' && (!typed || text === typed) && (!reason || why.trim()) && complete;
  const submit = async (event) => {
    event.preventDefault();
    if (!ready) return;
    set({ step: 'acts' });
    try {
      set({ step: 'done', answer: await run(why.trim(), values) });
    } catch (error) {
      set({ step: 'asks', error });
    }
  };
  return html`<dialog ref=${at} class="act" aria-labelledby="act-title" onClose=${close}>
    <form onSubmit=${submit}>
      <h2 id="act-title">${title}</h2>
      ${state.step === 'done'
        ? html`<div class="outcome" role="status">${done(state.answer)}</div>`
        : html`<ul class="effects">${effects.map((effect) => html`<li>${effect}</li>`)}</ul>
          ${fields.map(
            (field) => html`<label>${field.label}
              <input name=${field.name} value=${values[field.name] || ''} autocomplete="off" spellcheck="false"
                placeholder=${field.example || ''}
                onInput=${(event) => setValues({ ...values, [field.name]: event.target.value })} /></label>`,
          )}
          ${reason &&
          html`<label>Reason, for the holder and for the record
            <input name="reason" value=${why} autocomplete="off" maxlength="500"
              onInput=${(event) => setWhy(event.target.value)} /></label>`}
          ${typed &&
          html`<label><span>Type <code>${typed}</code> to go on</span>
            <input name="typed" value=${text} autocomplete="off" spellcheck="false" autocapitalize="off"
              onInput=${(event) => setText(event.target.value)} /></label>`}
          ${state.late && html`<p role="status">No answer yet. It may still happen, also after you close this: look again before you repeat it.</p>`}
          <${Problem} error=${state.error} always />`}
      <div class="buttons">
        <button type="button" onClick=${() => at.current.close()}>${state.step === 'asks' ? 'Cancel' : 'Close'}</button>
        ${state.step !== 'done' &&
        html`<button class=${typed ? 'danger' : 'primary'} disabled=${!ready}>${state.step === 'acts' ? 'Working…' : label}</button>`}
      </div>
    </form>
  </dialog>`;
}
