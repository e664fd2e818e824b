// What the console can do, and what it says before it does it.

import { html, useEffect, useRef, useState } from './vendor/htm-preact.js';
import { act, actor, can, isAnswer, name } from './api.js';
import { duration } from './format.js';
import { AGAIN_MS, store, useResource, useStore } from './live.js';
import { ActDialog } from './parts/dialog.js';
import { Age, ClientLink, Left } from './parts/basic.js';

/** Whether the caller may use a verb for a name; undefined until it is known. */
export function useCan(console, verb, lock = '') {
  const [allowed, set] = useState();
  useEffect(() => {
    let current = true;
    let timer;
    const ask = () =>
      can(verb, lock).then(
        (answer) => current && set(answer),
        (error) => {
          if (!current) return;
          if (isAnswer(error)) set(false);
          else timer = setTimeout(ask, AGAIN_MS);
        },
      );
    if (!console || console.read_only) set(false);
    else if (!console.identity) set(true);
    else ask();
    return () => {
      current = false;
      clearTimeout(timer);
    };
  }, [console && console.read_only, console && console.identity, console && console.principal, verb, lock]);
  return allowed;
}

/** Why an act is not offered. */
export function whyNot(console, verb) {
  if (!console) return '';
  return console.read_only ? 'the console of this member is read-only' : `needs the verb ${verb}`;
}

// The open dialog is about what was shown when it was opened.
const opened = store(undefined);

let dialogs = 0;

// Opens a dialog. `from` gets the focus back when it closes.
function openDialog(shown, from) {
  opened.set({ shown, from, id: (dialogs += 1) });
}

export function OpenDialog() {
  const dialog = useStore(opened);
  if (!dialog) return null;
  const close = () => {
    opened.set(undefined);
    // The act may have taken its own button away.
    const back = dialog.from && dialog.from.isConnected ? dialog.from : document.querySelector('main h1');
    if (back) back.focus();
  };
  return html`<div class="dialogs" key=${dialog.id}>${dialog.shown(close)}</div>`;
}

/** A button that opens the dialog of an act; `does` says in short what the act does. */
export function ActButton({ label, does = '', allowed, why, danger, children }) {
  return html`<button class=${danger ? 'danger' : ''} disabled=${!allowed} title=${allowed ? does : why}
      onClick=${(event) => openDialog(children, event.currentTarget)}>${label}</button>`;
}

/** How near to the end of its time a holder may have confirmed, or may have let it pass. */
const CLOSE_MS = 1000;

/** Follows a lock until its former holder has stopped and the next one has it. */
function Followed({ lock, token, left, now: atOnce, opens, waiting }) {
  const { data, at } = useResource(`/v1/locks/${name(lock)}`, { view: 'explain', limit: 1 }, 500);
  // Until when the lock could stay closed, and when it was seen open.
  const time = useRef({ over: Date.now() + left });
  if (!data) return html`<p>Looking…</p>`;
  const holders = (data.lock && data.lock.holders) || [];
  const former = holders.find((holder) => holder.token === token);
  const revoking = former && (former.state === 'held' || former.state === 'cooling');
  if (revoking && former.left_ms) time.current.over = at + former.left_ms;
  if (!revoking) time.current.ended ||= at;
  const now = holders.find((holder) => holder.token !== token && holder.state === 'held');
  const steps = [];
  if (former && former.state === 'held') steps.push('It still holds: nothing has changed yet.');
  else if (former) {
    steps.push(html`Taken away. ${BLOCKS[former.state]} <strong><${Left} ms=${former.left_ms || 0} at=${at} /></strong> at most.`);
  } else if (opens) steps.push('Opened.');
  else if (atOnce) steps.push('Taken away. The former holder may still act until it notices: only a fence protects the resource.');
  else if (time.current.ended < time.current.over - CLOSE_MS) steps.push(html`<strong>The former holder has stopped</strong>, and has confirmed it.`);
  else steps.push(html`<strong>The time of the former holder is over</strong>: its lease would have ended by now.`);
  if (now) steps.push(html`<span><${ClientLink} client=${now.client} /> holds it now, token ${now.token}, for <${Age} ms=${now.held_ms} at=${at} />.</span>`);
  else if (!former) steps.push('The lock is free.');
  const sooner = former && former.state === 'cooling';
  const takeNow = () => openDialog((close) => html`<${Force} now lock=${lock} holder=${former} waiting=${waiting} close=${close} />`, opened.get().from);
  return html`<ol class="followed">${steps.map((step) => html`<li>${step}</li>`)}</ol>
    ${sooner && html`<p><button type="button" class="danger" onClick=${takeNow}>Take away now…</button></p>`}`;
}

/** What keeps a lock closed that was taken away. */
const BLOCKS = {
  cooling: 'The holder was told to stop. The lock stays closed until it confirms that it has stopped, for another',
  delayed: 'The lock-delay of the former holder keeps the lock closed for another',
  resting: 'The min hold of the former holder keeps the lock closed for another',
};

/** How long a holder has to stop: what is left of its lease; longer after a renewal. */
function useTimeToStop(lock, holder) {
  const lease = useResource(`/v1/leases/${name(holder.lease)}`, {}, 1000);
  // Who may take the lock away need not be allowed to see the lease.
  const explained = useResource(lease.error ? `/v1/locks/${name(lock)}` : undefined, { view: 'explain', limit: 1 }, 1000);
  if (lease.data) return { ms: lease.data.left_ms, at: lease.at, ttl: lease.data.ttl_ms };
  const { data, at } = explained;
  const alone = data && data.lock && data.lock.holders.length === 1 && data.free_if_silent_ms != null;
  return alone ? { ms: Math.max(0, data.free_if_silent_ms - (holder.lock_delay_ms || 0)), at } : undefined;
}

/** Says until when the holder has time. */
function TimeToStop({ lock, holder }) {
  const time = useTimeToStop(lock, holder);
  return html`The lock stays closed until it confirms that it has stopped, ${time
    ? html`at most <strong><${Left} ms=${time.ms} at=${time.at} /></strong> from now: then its lease would have ended${time.ttl ? ` (ttl ${duration(time.ttl)} since its last renewal)` : ''}.`
    : 'at most until its lease would have ended.'}`;
}

const nextHolder = (waiters) =>
  waiters > 0 ? 'Then it goes to the first in the queue.' : 'Then it is free: no client waits.';

// What happens if a lock is taken away, by how it stands.
function forceEffects(lock, holder, waiting, now) {
  const client = html`<strong>${holder.client}</strong>`;
  const alive = holder.renewed_ms != null ? `It renewed its lease ${duration(holder.renewed_ms)} ago.` : '';
  const fence = html`<strong>It is not given time to stop.</strong> Until it notices, it may still act: only a fence that checks tokens protects the resource.`;
  const delay = holder.lock_delay_ms > 0 ? [`The lock-delay of ${duration(holder.lock_delay_ms)} follows. It cannot be skipped.`] : [];
  if (holder.state === 'resting') return [html`${client} has released <code>${lock}</code>. The rest of its min hold is skipped.`, nextHolder(waiting)];
  if (holder.state === 'cooling') {
    return [html`${client} lost <code>${lock}</code>, token ${holder.token}, and has not confirmed that it has stopped. The lock opens without waiting for it any longer.`, fence, ...delay, nextHolder(waiting)];
  }
  if (now) return [html`${client} loses <code>${lock}</code>, token ${holder.token}, at once. ${alive}`, fence, ...delay, nextHolder(waiting)];
  return [html`${client} is told to stop and loses <code>${lock}</code>, token ${holder.token}. ${alive}`, html`<${TimeToStop} lock=${lock} holder=${holder} />`, ...delay, nextHolder(waiting)];
}

/** Takes a lock away: with time for the holder to stop, or at once. */
export function Force({ lock, holder, waiting, now, close }) {
  const opens = holder.state === 'resting';
  const title = opens ? `Open ${lock} now` : `Take ${lock} away from ${holder.client}${now ? ' now' : ', once it has stopped'}`;
  const label = opens ? 'Open now' : now ? 'Take away now' : 'Take away once stopped';
  return html`<${ActDialog} title=${title} effects=${forceEffects(lock, holder, waiting, now)} reason
    typed=${lock} label=${label} close=${close}
    run=${(reason) => act('POST', '/v1/force', {}, { lock, token: holder.token, reason, by: actor(), now })}
    done=${(answer) => html`<${Followed} lock=${lock} token=${holder.token} left=${answer.left_ms} now=${now} opens=${opens} waiting=${waiting} />`} />`;
}

/** What is left of a lease, as it is renewed. */
function LeaseLeft({ lease }) {
  const { data, at } = useResource(`/v1/leases/${name(lease.lease)}`, {}, 1000);
  return data ? html`at most <strong><${Left} ms=${data.left_ms} at=${at} /></strong> from now: then the lease would have ended` : 'at most until the lease would have ended';
}

/** Revokes a lease with everything that is bound to it. */
export function Revoke({ lease, close }) {
  const holds = lease.holds.map((hold) => hold.lock);
  const effects = [
    html`Lease <span class="num">${lease.lease}</span> of <strong>${lease.client}</strong> ends.`,
    holds.length
      ? html`Its client is told to stop and loses ${holds.length === 1 ? 'lock' : 'locks'} <code>${holds.slice(0, 5).join(', ')}</code>${holds.length > 5 ? ` and ${holds.length - 5} more` : ''}. ${holds.length === 1 ? 'It stays' : 'Each stays'} closed until it confirms that it has stopped, <${LeaseLeft} lease=${lease} />.`
      : 'It holds no lock.',
    lease.waits.length ? `It leaves ${lease.waits.length === 1 ? 'the queue' : 'the queues'} of ${lease.waits.map((wait) => wait.lock).slice(0, 5).join(', ')}.` : 'It waits for nothing.',
    lease.keys.length ? `${lease.keys.length} of its keys are deleted.` : '',
  ].filter(Boolean);
  return html`<${ActDialog} title=${`Revoke a lease of ${lease.client}`} effects=${effects} reason typed=${lease.client} label="Revoke lease" close=${close}
    run=${(reason) => act('DELETE', `/v1/leases/${name(lease.lease)}`, { reason, by: actor() })}
    done=${(answer) => html`<p>Revoked at revision ${answer.header.revision}. Locks that were revoked show how long they stay closed.</p>`} />`;
}

const memberPath = (member) => `/v1/cluster/members/${name(member.name || member.member_id)}`;
const listed = (answer) =>
  html`<p>Done at revision ${answer.header.revision}. Members now: ${answer.members.map((it) => `${it.name || it.member_id} (${it.role})`).join(', ')}.</p>`;

export function Lead({ member, close }) {
  return html`<${ActDialog} title=${`Let ${member.name} lead`} close=${close} label="Transfer leadership"
    effects=${['The present leader hands over to it. Grants and renewals pause for some milliseconds.', 'If it cannot take over, the present leader goes on, or the members elect another.']}
    run=${() => act('POST', memberPath(member), {}, { action: 'lead' })} done=${listed} />`;
}

export function Promote({ member, close }) {
  return html`<${ActDialog} title=${`Give ${member.name} a vote`} close=${close} label="Promote"
    effects=${['It has caught up and votes from now on.', 'A majority is counted with it: if it is down, the cluster survives less.']}
    run=${() => act('POST', memberPath(member), {}, { action: 'promote' })} done=${listed} />`;
}

export function Remove({ member, close }) {
  return html`<${ActDialog} title=${`Remove ${member.name}`} close=${close} label="Remove for ever" typed=${member.name || member.member_id}
    effects=${[`${member.name} leaves the cluster for ever: its id and its data directory never come back.`, 'Its process stops. Clients that are connected to it connect to another member.', 'A majority is counted without it.']}
    run=${() => act('DELETE', memberPath(member))} done=${listed} />`;
}

export function Add({ close }) {
  return html`<${ActDialog} title="Add a member" close=${close} label="Add"
    effects=${['It learns and does not vote until it is promoted.', 'Most members join by themselves with an invitation; this is for one whose id is known.']}
    fields=${[
      { name: 'member_id', label: 'Its id', example: 'tenure member id, in decimal' },
      { name: 'name', label: 'Its name', example: 'd' },
      { name: 'member_address', label: 'Its address for members', example: '10.0.0.14:7451' },
      { name: 'client_address', label: 'Its address for clients', example: '10.0.0.14:7450' },
    ]}
    run=${(_, values) => act('POST', '/v1/cluster/members', {}, values)} done=${listed} />`;
}

export function Invite({ close }) {
  return html`<${ActDialog} title="Invite a member" close=${close} label="Make an invitation"
    effects=${['One member can join with it within ten minutes. It learns and does not vote until it is promoted.', 'Its secret is shown once.']}
    run=${() => act('POST', '/v1/cluster/invitations', {}, { expires_ms: 600_000 })}
    done=${(answer) => html`<p>On the new machine:</p><pre>tenure serve --name NAME --join ADDRESS --invitation ${answer.invitation}</pre>`} />`;
}
