// The members of the cluster, what is wrong with them, and what can be done.

import { html } from '../vendor/htm-preact.js';
import { useResource } from '../live.js';
import { bytes, count, duration } from '../format.js';
import { certificateLevel, findings } from '../findings.js';
import { ActButton, Add, Invite, Lead, Promote, Remove, useCan, whyNot } from '../acts.js';
import { Badge, Command, elsewhere, Field, Panel, Problem, Time } from '../parts/basic.js';

/** A duration in microseconds, which is often less than a millisecond. */
const quick = (us) => (us < 1000 ? '<1ms' : duration(us / 1000));

/** How far a member is behind: each knows it of itself, and the leader of all. */
function Behind({ member, leader }) {
  if (member.role === 'leader') return '–';
  if (member.behind != null) return count(member.behind);
  return leader ? html`<a href=${elsewhere(leader.client_address)} title="Only the leader knows it. This opens its console.">ask ${leader.name}</a>` : html`<span class="dim">not known</span>`;
}

/** When a certificate expires, and whether that is soon. */
function Expiry({ at }) {
  const level = certificateLevel(at);
  return html`<${Time} at=${at} />${level && html` <${Badge} level=${level}>${level === 'bad' ? 'expired' : 'soon'}<//>`}`;
}

/** What this member does not know of the others, and where to look for it. */
function Unknown({ own, leader, certified }) {
  const leads = own && own.serving;
  return html`<p class="note">${leads || !own
      ? ''
      : html`This member is a follower. It knows how far it is behind itself; of the other members only whether it has a connection to them. How far they are behind is known to the leader${leader ? html`: <a href=${elsewhere(leader.client_address)}>the console of ${leader.name} (${leader.client_address})</a>` : ', and no leader is known at the moment'}. `}
    Each member alone knows its own fsync, disk and version: its console is at its address for clients. ${certified ? 'A certificate of another member is the one that it presented when this member last connected with it; none is shown without a connection.' : ''}</p>`;
}

export function Members({ console }) {
  const { data: status, at, error } = useResource('/v1/cluster', {}, 2000);
  const { data: own, error: ownError } = useResource('/v1/member', {}, 2000);
  const may = useCan(console, 'operate');
  const why = whyNot(console, 'operate');
  const found = status ? findings(status) : [];
  const leader = status && status.members.find((member) => member.role === 'leader' && member.client_address);
  const certified = status && status.members.some((member) => member.certificate_expires_ms != null);
  return html`<h1 tabindex="-1">Members</h1>
    <${Problem} error=${error} />
    ${status &&
    html`<${Panel} title=${{ ok: 'Healthy', warn: 'Needs attention', bad: 'What is wrong' }[found[0].level]} id="findings" aside=${html`<${Command} words=${['tenure', 'doctor']} />`}>
      <ul class="findings">${found.map((it) => html`<li class=${it.level}><span class=${`dot ${it.level}`} aria-hidden="true"></span><span><span class="sr">${it.level === 'ok' ? 'fine: ' : it.level === 'warn' ? 'warning: ' : 'bad: '}</span>${it.what}${it.next && html`<br /><span class="dim">${it.next}</span>`}</span></li>`)}</ul>
    <//>
    <${Panel} title="Members" id="members" note=${`cluster ${own ? own.cluster : ''}, revision ${status.header ? status.header.revision : ''}, feature level ${status.level}`}
      aside=${html`<span class="acts">
        <${ActButton} label="Invite…" allowed=${may} why=${why}>${(close) => html`<${Invite} close=${close} />`}<//>
        <${ActButton} label="Add…" allowed=${may} why=${why}>${(close) => html`<${Add} close=${close} />`}<//></span>`}>
      <div class="scroll" tabindex="0" role="group" aria-label="Members"><table class="stack"><thead><tr><th>Member</th><th>Role</th><th>State</th><th>Address for clients</th><th class="numeric">Entries behind</th><th class="numeric">fsync p99</th><th class="numeric">Disk free</th><th>Version</th>${certified && html`<th>Certificate expires</th>`}<th><span class="sr">Acts</span></th></tr></thead>
        <tbody>${[...status.members].sort((one, other) => one.name.localeCompare(other.name)).map(
          (member) => html`<tr key=${member.member_id}><td data-label="Member"><div title=${`id ${member.member_id}`}><strong>${member.name || '–'}</strong></div></td>
            <td data-label="Role">${member.role === 'leader' ? html`<${Badge} level="ok">leader<//>` : member.role}</td>
            <td data-label="State"><div>${member.up ? member.state === 'up to date' ? html`<${Badge} level="ok">up to date<//>` : html`<${Badge} level="ok">up<//> <span class="dim">${member.state}</span>` : html`<${Badge} level="bad">does not answer<//>`}</div></td>
            <td data-label="For clients">${member.client_address && member.up ? html`<a href=${elsewhere(member.client_address)}>${member.client_address}</a>` : member.client_address}</td>
            <td class="numeric" data-label="Entries behind"><${Behind} member=${member} leader=${leader} /></td>
            <td class="numeric" data-label="fsync p99">${member.fsync_p99_us ? quick(member.fsync_p99_us) : ''}</td>
            <td class="numeric" data-label="Disk free">${bytes(member.disk_free_bytes)}</td><td data-label="Version">${member.software || ''}</td>
            ${certified && html`<td data-label="Certificate"><div>${member.certificate_expires_ms == null ? html`<span class="dim">not known</span>` : html`<${Expiry} at=${member.certificate_expires_ms} />`}</div></td>`}
            <td><div class="acts">
              ${member.role === 'follower' && member.up && html`<${ActButton} label="Lead…" allowed=${may} why=${why}>${(close) => html`<${Lead} member=${member} close=${close} />`}<//>`}
              ${member.role === 'learner' && html`<${ActButton} label="Promote…" allowed=${may} why=${why}>${(close) => html`<${Promote} member=${member} close=${close} />`}<//>`}
              ${status.members.length > 1 && html`<${ActButton} label="Remove…" danger allowed=${may} why=${why}>${(close) => html`<${Remove} member=${member} close=${close} />`}<//>`}
            </div></td></tr>`,
        )}</tbody></table></div>
      <${Unknown} own=${own} leader=${leader} certified=${certified} />
    <//>`}
    <${Problem} error=${ownError} />
    ${own &&
    html`<${Panel} title=${`This member: ${own.name || own.member_id}`} id="own" aside=${html`<${Command} words=${['tenure', 'cluster', 'status']} />`}>
      <dl class="fields">
        <${Field} label="Role">${own.role}, term ${own.term}<//>
        <${Field} label="Serves">${own.serving ? 'as leader' : own.leader ? `follows ${own.leader.name}` : 'no leader is known'}<//>
        <${Field} label="Log">${count(own.last)} entries, ${bytes(own.log_bytes)}; committed ${count(own.committed)}, applied ${count(own.applied)}<//>
        <${Field} label="Snapshot">${own.base ? `up to entry ${count(own.base)}` : 'none yet'}<//>
        <${Field} label="Size of the state">${bytes(own.state_bytes)}, hash <span class="num">${own.hash.slice(0, 12)}…</span><//>
        <${Field} label="Disk">${bytes(own.data_bytes)} used, ${bytes(own.disk_free_bytes)} free${own.disk_short ? ', short' : ''}<//>
        <${Field} label="fsync">p99 ${quick(own.fsync_p99_us)}, last ${quick(own.fsync_last_us)}, ${count(own.syncs)} in all<//>
        <${Field} label="Clock">${console ? html`<${Time} at=${console.now_unix_ms + (Date.now() - console.readAt)} />${Math.abs(console.now_unix_ms - console.readAt) > 2000 ? html` <${Badge} level="warn">${duration(Math.abs(console.now_unix_ms - console.readAt))} off this browser<//>` : ''}` : ''} <br /><span class="dim" title="The clock by which leases end: it runs while there is a leader">lease clock ${duration(own.clock_ms)}</span><//>
        ${own.certificate_expires_ms != null && html`<${Field} label="Certificates">the first of its own and its authorities' expires <${Expiry} at=${own.certificate_expires_ms} /><//>`}
        <${Field} label="Feature level">${own.level} in use, ${own.level_known} supported<//>
        <${Field} label="Leader priority">${own.preference ?? '–'}<//>
        <${Field} label="Epoch">${own.epoch === 0 ? '0: never restored' : own.epoch}<//>
      </dl>
    <//>`}`;
}
