// Who may do what: principals, roles and quotas, without secrets.

import { html } from '../vendor/htm-preact.js';
import { useResource } from '../live.js';
import { bytes, count, plural } from '../format.js';
import { Badge, Command, Empty, Panel, Problem, Time } from '../parts/basic.js';

const NEAR = 0.8;
const COUNTED = ['leases', 'locks', 'places', 'keys', 'bytes'];

/** The verbs of a rule, with the greatest priority of the requests that it permits. */
function verbWords({ verbs, priority }) {
  const urgent = (verb) => priority > 0 && (verb === 'acquire' || verb === 'elect');
  return verbs.map((verb) => (urgent(verb) ? `${verb} (priorities up to ${priority})` : verb)).join(', ');
}

/** What a principal uses of what it may. */
function Use({ used, quotas, defaults }) {
  const shown = COUNTED.map((field) => {
    const bound = (quotas && quotas[field]) ?? (defaults && defaults[field]);
    return { field, use: used ? used[field] : undefined, bound };
  }).filter((it) => it.bound != null || it.use);
  if (!shown.length) return html`<span class="dim">nothing</span>`;
  return shown.map(({ field, use, bound }) => {
    const near = bound != null && use >= bound * NEAR;
    const text = field === 'bytes' ? bytes(use || 0) : count(use || 0);
    const most = bound == null ? '' : ` of ${field === 'bytes' ? bytes(bound) : count(bound)}`;
    return html`<span class=${`item ${near ? 'near' : ''}`} title=${near ? 'near its quota' : ''}>${field} ${text}${most}</span> `;
  });
}

export function Access() {
  const { data: status, error } = useResource('/v1/access', {}, 10_000);
  const principals = useResource('/v1/access/principals', { limit: 500 }, 10_000);
  const roles = useResource('/v1/access/roles', { limit: 500 }, 10_000);
  const usage = useResource('/v1/access/usage', { limit: 1000 }, 10_000);
  const used = new Map(usage.data ? usage.data.principals.map((it) => [it.principal, it.used]) : []);
  const denied = principals.error && principals.error.reason === 'PERMISSION_DENIED';
  const near = (usage.data ? usage.data.principals : []).filter((it) => COUNTED.some((field) => it.bounds[field] != null && it.used[field] >= it.bounds[field] * NEAR));
  return html`<h1 tabindex="-1">Access</h1><${Problem} error=${error} />
    ${status &&
    html`<p class="answer">${status.enabled ? html`Identity is <strong>enabled</strong>${status.principal ? html`: you are <strong>${status.principal}</strong>` : ''}.` : html`Identity is <strong>not enabled</strong>: every caller may do everything but change access rules.`}
      ${near.length > 0 && html` <${Badge} level="warn">${plural(near.length, 'principal is', 'principals are')} near a quota<//>`}</p>`}
    ${denied && html`<p class="problem">What others may do is shown to administrators: it needs the verb administer.</p>`}
    ${principals.data &&
    html`<${Panel} title="Principals" id="principals" note=${plural(principals.data.principals.length, 'principal')} aside=${html`<${Command} words=${['tenure', 'auth', 'principal', 'list']} />`}>
      ${principals.data.principals.length
        ? html`<div class="scroll" tabindex="0" role="group" aria-label="Principals"><table><thead><tr><th>Principal</th><th>Roles</th><th>API keys</th><th>Uses</th></tr></thead><tbody>
          ${principals.data.principals.map(
            (it) => html`<tr key=${it.principal}><td><strong>${it.principal}</strong> ${!it.enabled && html`<${Badge} level="bad">disabled<//>`}</td>
              <td>${it.roles.join(', ')}</td>
              <td>${it.keys.map((key) => html`<span class="item"><span class="num">${key.key}</span> ${key.name} ${key.expired ? html`<${Badge} level="bad">expired<//>` : key.expires_ms ? html`<span class="dim">until <${Time} at=${key.expires_ms} /></span>` : ''}</span>`)}</td>
              <td><${Use} used=${used.get(it.principal)} quotas=${it.quotas} defaults=${status && status.default_quotas} /></td></tr>`,
          )}</tbody></table></div>`
        : html`<${Empty}>No principal.<//>`}
    <//>`}
    ${roles.data &&
    html`<${Panel} title="Roles" id="roles" aside=${html`<${Command} words=${['tenure', 'auth', 'role', 'list']} />`}>
      ${roles.data.roles.length
        ? html`<table><thead><tr><th>Role</th><th>Verbs</th><th>For names that begin with</th></tr></thead><tbody>
          ${roles.data.roles.flatMap((role) => (role.rules.length ? role.rules : [{ verbs: [], prefix: '' }]).map((rule, index) => html`<tr key=${`${role.role} ${index}`}><td>${index === 0 && html`<strong>${role.role}</strong>`}</td><td>${verbWords(rule)}</td><td>${rule.prefix ? html`<code>${rule.prefix}</code>` : html`<span class="dim">anything: the cluster</span>`}</td></tr>`))}</tbody></table>`
        : html`<${Empty}>No role.<//>`}
    <//>`}`;
}
