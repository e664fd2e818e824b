// The members of the cluster, what is wrong with them, and what can be done.

import { html } from '../vendor/htm-preact.js';
import { useResource } from '../live.js';
import { bytes, count, duration } from '../format.js';
import { findings } from '../findings.js';
import { ActButton, Add, Invite, Lead, Promote, Remove, useCan, whyNot } from '../acts.js';
import { Badge, Command, Field, Panel, Problem, Time } from '../parts/basic.js';

export function Members({ console }) {
  const { data: status, at, error } = useResource('/v1/cluster', {}, 2000);
  const { data: own, error: ownError } = useResource('/v1/member', {}, 2000);
  const may = useCan(console, 'operate');
  const why = whyNot(console, 'operate');
  const found = status ? findings(status) : [];
  const scheme = location.protocol;
  return html`<h1 tabindex="-1">Members</h1>
    <${Problem} error=${error} />
    ${status &&
    html`<${Panel} title="What is wrong" id="findings" aside=${html`<${Command} words=${['tenure', 'doctor']} />`}>
      <ul class="findings">${found.map((it) => html`<li class=${it.level}><span class=${`dot ${it.level}`} aria-hidden="true"></span><span><span class="sr">${it.level === 'ok' ? 'fine: ' : it.level === 'warn' ? 'warning: ' : 'bad: '}</span>${it.what}${it.next && html`<br /><span class="dim">${it.next}</span>`}</span></li>`)}</ul>
    <//>
    <${Panel} title="Members" id="members" note=${`cluster ${own ? own.cluster : ''}, revision ${status.header ? status.header.revision : ''}, feature level ${status.level}`}
      aside=${html`<span class="acts">
        <${ActButton} label="Invite…" allowed=${may} why=${why}>${(close) => html`<${Invite} close=${close} />`}<//>
        <${ActButton} label="Add…" allowed=${may} why=${why}>${(close) => html`<${Add} close=${close} />`}<//></span>`}>
      <div class="scroll" tabindex="0" role="group" aria-label="Members"><table><thead><tr><th>Member</th><th>Role</th><th>State</th><th>Clients</th><th class="numeric">Behind</th><th class="numeric">fsync p99</th><th class="numeric">Disk free</th><th>Version</th><th><span class="sr">Acts</span></th></tr></thead>
        <tbody>${[...status.members].sort((one, other) => one.name.localeCompare(other.name)).map(
          (member) => html`<tr key=${member.member_id}><td><strong>${member.name || '–'}</strong> <span class="dim num">${member.member_id}</span></td>
            <td>${member.role === 'leader' ? html`<${Badge} level="ok">leader<//>` : member.role}</td>
            <td>${member.up ? html`<${Badge} level="ok">up<//> <span class="dim">${member.state}</span>` : html`<${Badge} level="bad">does not answer<//>`}</td>
            <td>${member.client_address && member.up ? html`<a href=${`${scheme}//${member.client_address}/${location.hash}`}>${member.client_address}</a>` : member.client_address}</td>
            <td class="numeric">${member.role === 'leader' ? '–' : count(member.behind)}</td>
            <td class="numeric">${member.fsync_p99_us ? duration(member.fsync_p99_us / 1000) || '<1ms' : ''}</td>
            <td class="numeric">${bytes(member.disk_free_bytes)}</td><td>${member.software || ''}</td>
            <td><div class="acts">
              ${member.role === 'follower' && member.up && html`<${ActButton} label="Lead…" allowed=${may} why=${why}>${(close) => html`<${Lead} member=${member} close=${close} />`}<//>`}
              ${member.role === 'learner' && html`<${ActButton} label="Promote…" allowed=${may} why=${why}>${(close) => html`<${Promote} member=${member} close=${close} />`}<//>`}
              ${status.members.length > 1 && html`<${ActButton} label="Remove…" danger allowed=${may} why=${why}>${(close) => html`<${Remove} member=${member} close=${close} />`}<//>`}
            </div></td></tr>`,
        )}</tbody></table></div>
      <p class="note">The disk and the version of a member are known to itself: its console is at its address for clients.</p>
    <//>`}
    <${Problem} error=${ownError} />
    ${own &&
    html`<${Panel} title=${`This member: ${own.name || own.member_id}`} id="own" aside=${html`<${Command} words=${['tenure', 'cluster', 'status']} />`}>
      <dl class="fields">
        <${Field} label="Role">${own.role}, term ${own.term}<//>
        <${Field} label="Serves">${own.serving ? 'as leader' : own.leader ? `behind ${own.leader.name}` : 'no leader is known'}<//>
        <${Field} label="Log">${count(own.last)} entries, ${bytes(own.log_bytes)}; committed ${count(own.committed)}, applied ${count(own.applied)}<//>
        <${Field} label="Snapshot">${own.base ? `up to entry ${count(own.base)}` : 'none yet'}<//>
        <${Field} label="State">${bytes(own.state_bytes)}, hash <span class="num">${own.hash.slice(0, 12)}…</span><//>
        <${Field} label="Disk">${bytes(own.data_bytes)} used, ${bytes(own.disk_free_bytes)} free${own.disk_short ? ', short' : ''}<//>
        <${Field} label="fsync">p99 ${duration(own.fsync_p99_us / 1000)}, last ${duration(own.fsync_last_us / 1000)}, ${count(own.syncs)} in all<//>
        <${Field} label="Clock">${console ? html`<${Time} at=${console.now_unix_ms + (Date.now() - console.readAt)} />${Math.abs(console.now_unix_ms - console.readAt) > 2000 ? html` <${Badge} level="warn">${duration(Math.abs(console.now_unix_ms - console.readAt))} off this browser<//>` : ''}` : ''} <span class="dim">cluster clock ${duration(own.clock_ms)}</span><//>
        ${own.certificate_expires_ms != null && html`<${Field} label="Certificate">expires <${Time} at=${own.certificate_expires_ms} />${own.certificate_expires_ms - Date.now() < 14 * 86_400_000 ? html` <${Badge} level="warn">soon<//>` : ''}<//>`}
        <${Field} label="Feature level">${own.level}, knows ${own.level_known}<//>
        <${Field} label="Preference">${own.preference ?? '–'}<//>
        <${Field} label="Epoch">${own.epoch}<//>
      </dl>
    <//>`}`;
}
