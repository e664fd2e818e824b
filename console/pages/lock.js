// One lock: who holds it, since when and why, who waits, what is in the way, and what happened to it.

import { html, useEffect, useMemo, useState } from '../vendor/htm-preact.js';
import { useKnownNow, useResource } from '../live.js';
import { useChanges, useSpaced } from '../streams.js';
import { isAnswer, memberNow, name } from '../api.js';
import { href } from '../router.js';
import { cause, content, count, duration, LOSSES, nested, plural } from '../format.js';
import { endOf, freeSlots, isDeep } from '../blocking.js';
import { holds, unsafe } from '../holds.js';
import { ActButton, Force, Revoke, useCan, whyNot } from '../acts.js';
import { Age, Brief, Choice, ClientLink, Command, Empty, Field, InTheEnd, LeaseLink, Left, LockLink, Panel, Problem, State, Time, TimeHead, TtlBar } from '../parts/basic.js';
import { WhatIsInTheWay } from '../parts/blocking.js';
import { List, usePages } from '../parts/list.js';

/** How often the past is read at most, how many revisions, and how many holds are shown. */
const PAST_MS = 10_000;
const PAST_REVISIONS = 200;
const PAST_HOLDS = 60;
const DAY = 86_400_000;

const path = (lock) => `/v1/locks/${name(lock)}`;

/** Whether a name has no holder, no waiter and no past. */
export const isUnknown = (explained, past) => !explained.lock && !explained.ahead.length && Boolean(past) && !past.changes.length && !past.before;

/** How a lock stands, in one word. A holder that has not renewed for half of its ttl is late, not lost. */
function standing({ lock, drained, free_if_silent_ms: silent }) {
  if (!lock || !lock.holders.length) return drained ? 'drained' : 'vacant';
  const first = lock.holders[0];
  const left = silent == null ? undefined : silent - (first.lock_delay_ms || 0);
  return first.state === 'held' && first.renewed_ms > left ? 'doubtful' : first.state;
}

/** Who took a lock away, and why. */
function Taken({ hold }) {
  if (!hold || !LOSSES.has(hold.end)) return null;
  return html`${hold.by ? html` by <a class="name" href=${href('audit', '', { text: hold.by })} title="Audit">${hold.by}</a>` : ''}${hold.reason ? `: “${hold.reason}”` : ''}`;
}

/** How a lock without a holder was held last. */
export function LastHeld({ hold }) {
  if (!hold || !hold.end) return null;
  return html` It was last held by <${ClientLink} client=${hold.client} /><${Ended} hold=${hold} />.`;
}

/** Until when a lock was held, and how that ended. */
export function Ended({ hold }) {
  return html`${hold.to ? html` until <${Time} at=${hold.to} />` : ''}: ${cause(hold.end)}<${Taken} hold=${hold} />`;
}

/** Why a lock is not granted although it could be. */
function Drained({ drained, at }) {
  if (!drained) return null;
  const below = drained.prefix ? html`Locks below <code>${drained.prefix}</code> are` : 'All locks are';
  return html` <strong>${below} closed to new holders</strong> for <${Age} ms=${drained.drained_ms} at=${at} />${drained.by ? html` by <strong>${drained.by}</strong>` : ''}${drained.reason ? `: “${drained.reason}”` : ''}. No client is granted it until they are opened again.`;
}

/** Who may still be working with a lock that was taken from it. */
function Unsafe({ list, holders }) {
  const now = useKnownNow() + memberNow() - Date.now();
  return unsafe(list, holders.map((holder) => holder.token), now).slice(-5).map((hold) => {
    const still = hold.until > now;
    return html`<p class="unsafe" key=${hold.token} role="status"><strong><${ClientLink} client=${hold.client} /> may ${still ? 'still be working' : 'have worked'} until <${Time} at=${hold.until} /></strong>${still ? '' : ', when the next client had the lock already'}: it was not given time to stop; only a fence ${still ? 'protects' : 'protected'} the resource.</p>`;
  });
}

/** The answer in one sentence. */
function Summary({ explained, at, list }) {
  const { lock, ahead, chain, free_if_silent_ms: silent, free_at_latest_ms: latest, quiet_ms: quiet } = explained;
  if (quiet) return html`<p class="answer">Nothing is granted for another <${Left} ms=${quiet} at=${at} />: the cluster was restored.</p>`;
  const drained = html`<${Drained} drained=${explained.drained} at=${at} />`;
  if (!lock || !lock.holders.length) {
    return html`<p class="answer">No holder${lock && lock.waiting ? html`, and ${plural(lock.waiting, 'client waits', 'clients wait')}` : ' and no waiter'}.${drained}<${LastHeld} hold=${list.find((hold) => hold.end)} /></p>`;
  }
  const first = lock.holders[0];
  const taken = list.find((hold) => hold.token === first.token);
  const others = lock.holders.length - 1;
  const slots = freeSlots(lock);
  const who =
    first.state === 'held'
      ? html`Held by <${ClientLink} client=${first.client} />${others ? ` and ${plural(others, 'other')}` : ''} for <${Age} ms=${first.held_ms} at=${at} />${first.renewed_ms != null && !others ? html`; it renewed its lease <${Age} ms=${first.renewed_ms} at=${at} /> ago` : ''}.`
      : first.state === 'cooling'
        ? html`Taken away from <${ClientLink} client=${first.client} /><${Taken} hold=${taken} />. Closed until it confirms that it has stopped, for <${Left} ms=${first.left_ms || 0} at=${at} /> at most.`
        : first.state === 'resting'
          ? html`Released by <${ClientLink} client=${first.client} />. Not granted again for another <${Left} ms=${first.left_ms || 0} at=${at} />: its min hold of ${duration(first.min_hold_ms)} since the grant.`
          : html`Lost by <${ClientLink} client=${first.client} /><${Taken} hold=${taken} />. Not granted again for another <${Left} ms=${first.left_ms || 0} at=${at} />: its lock-delay.`;
  const waits = lock.waiting
    ? html` ${plural(lock.waiting, 'client waits', 'clients wait')}${ahead[0] ? html`; the first, <${ClientLink} client=${ahead[0].client} />, for <${Age} ms=${ahead[0].waiting_ms} at=${at} /><${Choice} of=${ahead[0]} />` : ''}.`
    : html` No client waits.`;
  const it = lock.slots ? 'A slot' : 'It';
  const free =
    slots || first.state !== 'held'
      ? ''
      : latest != null
        ? html` ${it} is free when released, or in <${Left} ms=${latest} at=${at} /> at the latest.`
        : silent != null
          ? html` ${it} is free when released, or in <${Left} ms=${silent} at=${at} /> if the holder stops renewing now.`
          : '';
  const end = endOf(explained);
  const behind = end && chain.length > 1 ? html` <strong>Its holder waits itself: in the end everything waits for <${InTheEnd} end=${end} />.</strong>` : '';
  return html`<p class="answer">${slots ? html`<strong>${count(slots)} of ${plural(lock.slots, 'slot')} ${slots === 1 ? 'is' : 'are'} free.</strong> ` : ''}${who}${drained}${waits}${behind}${free}</p>`;
}

const capital = (text) => text[0].toUpperCase() + text.slice(1);

/** An act with what it does beside it; as its tooltip among many. */
function Act({ brief, does, children, ...button }) {
  const shown = html`<${ActButton} does=${does} ...${button}>${children}<//>`;
  return brief ? shown : html`<div class="act-line">${shown}<span class="note">${does}</span></div>`;
}

/** What can be done about a holder, by how it stands. */
function HolderActs({ lock, holder, lease, console, waiting, brief }) {
  const may = useCan(console, 'force', lock);
  const mayRevoke = useCan(console, 'force');
  const why = whyNot(console, 'force');
  const force = (now) => (close) => html`<${Force} now=${now} lock=${lock} holder=${holder} waiting=${waiting} close=${close} />`;
  if (holder.state === 'delayed') return null;
  const act = { brief, allowed: may, why };
  if (holder.state === 'resting') return html`<div class="acts"><${Act} ...${act} label="Open now…" does="The rest of its min hold is skipped." danger>${force(true)}<//></div>`;
  const others = lease ? lease.holds.length - 1 : 0;
  return html`<div class="acts">
    ${holder.state === 'held' && html`<${Act} ...${act} label="Take away once stopped…" does="It is told to stop. The next client gets the lock when it has stopped, at the latest when its lease would have ended.">${force(false)}<//>`}
    <${Act} ...${act} label="Take away now…" does="The next client gets the lock at once, although the holder may still be working: only a fence protects." danger>${force(true)}<//>
    ${holder.state === 'held' && html`<${Act} ...${act} label="Revoke lease…" does=${`As “once stopped”, for everything that its lease has: this lock${others > 0 ? ` and ${plural(others, 'other')}` : ' alone'}.`} danger allowed=${mayRevoke && lease} why=${whyNot(console, 'force for the cluster')}>${(close) => html`<${Revoke} lease=${lease} close=${close} />`}<//>`}
    ${may === false && !brief && html`<p class="note">Not possible here: ${why}.</p>`}
  </div>`;
}

/** One grant: its client, since when it has the lock, and until when its lease lives. */
function Holder({ holder, hold, at, console, told }) {
  const { data: lease, at: leaseAt, error } = useResource(`/v1/leases/${name(holder.lease)}`, {}, 4000);
  useEffect(() => told(holder.token, lease), [holder.token, lease]);
  const held = holder.state === 'held';
  const why = content(holder.metadata, holder.metadata_base64);
  return html`<article class="holder" aria-label=${`Holder ${holder.client}`}>
    <div class="who"><${ClientLink} client=${holder.client} /> <${State} state=${holder.state === 'held' && lease && lease.left_ms < lease.ttl_ms / 2 ? 'doubtful' : holder.state} />
      ${holder.slot != null && html`<span class="dim">slot ${holder.slot}</span>`}</div>
    ${why && html`<p class="why" title="What the holder says it does">“${why}”</p>`}
    ${lease && lease.metadata && lease.metadata !== why && html`<p class="why dim">${lease.metadata}</p>`}
    <dl>
      ${held && html`<${Field} label="Holds the lock for"><${Age} ms=${holder.held_ms} at=${at} /><//>`}
      <${Field} label="Lock granted">${hold && hold.from ? html`<${Time} at=${hold.from} />` : html`about <${Time} at=${at - holder.held_ms} />`}<//>
      ${!held && hold && hold.to && html`<${Field} label=${capital(cause(hold.end))}><${Time} at=${hold.to} /><//>`}
      <${Field} label="Fencing token"><span class="num">${holder.token}</span><//>
      <${Field} label="Mode">${holder.election ? 'election' : holder.mode}<//>
      <${Field} label="Lease"><${LeaseLink} lease=${holder.lease} /><//>
      ${lease && lease.waits.length > 0 && html`<${Field} label="Waits for">${lease.waits.slice(0, 3).map((wait) => html`<${LockLink} lock=${wait.lock} /> `)}<//>`}
      ${holder.renewed_ms != null && html`<${Field} label="Lease last renewed"><${Age} ms=${holder.renewed_ms} at=${at} /> ago<//>`}
      ${holder.progress && html`<${Field} label="Progress">${holder.progress.number}, due again in ${duration(holder.progress.left_ms)}<//>`}
      ${holder.max_hold_ms != null && html`<${Field} label="May hold">${duration(holder.max_hold_ms)} at most<//>`}
      ${holder.lock_delay_ms > 0 && html`<${Field} label="Lock-delay">${duration(holder.lock_delay_ms)}<//>`}
    </dl>
    ${lease && html`<div class="lease-line"><${TtlBar} ttl=${lease.ttl_ms} left=${lease.left_ms} at=${leaseAt} label=${`Time left of the lease of ${holder.client}`} />
      <span class="dim">lease ends in <${Left} ms=${lease.left_ms} at=${leaseAt} /> unless renewed (ttl ${duration(lease.ttl_ms)})</span></div>`}
    ${!lease && error && isAnswer(error) && html`<p class="note">${console.readsAll ? 'Its lease has ended.' : 'You may not see its lease: that needs the verb read for the cluster.'}</p>`}
  </article>`;
}

/** When a waiter's turn may come, from how long the lock is usually held. */
function estimate(waiter, explained) {
  const usual = explained.usually_held_ms;
  const holder = explained.lock && explained.lock.holders[0];
  // A hold that outlasts the usual says nothing about its end.
  if (!usual || !holder || holder.held_ms > usual || explained.lock.slots || waiter.mode === 'shared' || waiter.any || waiter.pool) return undefined;
  return usual - holder.held_ms + waiter.ahead * usual;
}

/** Why there is no estimate for anyone in the queue. */
function noEstimate({ lock, usually_held_ms: usual }) {
  if (!usual) return 'too few holds are recorded';
  return lock.holders[0]?.held_ms > usual ? 'it is held longer than usual' : 'there may be another slot or lock, or room to share';
}

function Queue({ lock, explained, at }) {
  const waiting = explained.lock ? explained.lock.waiting : 0;
  const { rows, more, loading, error } = usePages(waiting ? path(lock) : undefined, { view: 'queue', stale: true }, 'waiters', 1000);
  const shown = waiting <= 100 ? explained.ahead.map((it) => Object.assign(it, { at })) : rows;
  const guessed = shown.some((it) => estimate(it, explained) != null);
  const columns = [
    { label: '#', width: '4rem', narrow: '2rem', numeric: true, cell: (it) => it.ahead + 1 },
    { label: 'Client', width: 'minmax(10rem, 2fr)', narrow: 'minmax(0, 1fr)', cell: (it) => html`<${ClientLink} client=${it.client} />${it.priority ? html` <span class="dim">priority ${it.priority}</span>` : ''}<${Choice} of=${it} />` },
    { label: 'Waits for', width: '6rem', narrow: '5rem', numeric: true, cell: (it) => html`<${Age} ms=${it.waiting_ms} at=${it.at} />` },
    { label: 'Mode', width: '6rem', cell: (it) => (it.election ? 'election' : it.mode) },
    { label: 'Gives up in', width: '7rem', numeric: true, cell: (it) => (it.left_ms == null ? html`<span class="dim">never</span>` : html`<${Left} ms=${it.left_ms} at=${it.at} />`) },
    ...(guessed ? [{ label: 'Turn, estimated', width: '8rem', narrow: '7rem', numeric: true, cell: (it) => { const ms = estimate(it, explained); return ms == null ? html`<span class="dim">–</span>` : `in ≈ ${duration(ms)}`; } }] : []),
    { label: 'Lease', width: '7rem', cell: (it) => html`<${LeaseLink} lease=${it.lease} />` },
  ];
  const usual = explained.usually_held_ms != null ? `usually held ${duration(explained.usually_held_ms)} (median of ${explained.usually_of})` : '';
  return html`<${Panel} title="Queue" id="queue" note=${[waiting ? `${count(waiting)} in grant order` : '', usual, waiting && !guessed ? `turns are not estimated: ${noEstimate(explained)}` : ''].filter(Boolean).join('; ')}>
    <${Problem} error=${error} />
    ${waiting
      ? html`<${List} rows=${shown} columns=${columns} keyOf=${(it) => it.place} label="Queue" height=${32 * Math.min(waiting, 15)}
          more=${waiting > 100 ? more : undefined} loading=${waiting > 100 && loading} />`
      : html`<${Empty}>No client waits.<//>`}
  <//>`;
}

/** How long before a grant the former holder could act for the last time. */
function Margin({ ms }) {
  if (ms >= 0) return duration(ms);
  const why = `for ${duration(-ms)} only a fence protected the resource`;
  return html`<span class="loss" title=${`Not given time to stop: ${why}`}>none<span class="narrow">: ${why}</span></span>`;
}

/** How a hold ended: by whom and why if it was taken away. */
function End({ hold }) {
  return html`<span class=${LOSSES.has(hold.end) ? 'loss' : ''}>${cause(hold.end)}</span><${Taken} hold=${hold} />`;
}

/** So long after a window a hold that is open there may have ended. */
const OLD_MS = 5000;

/**
 * Holds, one in each row, as they were read at `at`. What happened is known until `until`, or until then. How long the
 * present `holders` have held is what the member counts: its clock stands still while there is no leader.
 */
export function HoldTable({ list, lockColumn, at, until, holders = [] }) {
  if (!list.length) return html`<${Empty}>Nothing is recorded.<//>`;
  const now = at + memberNow() - Date.now();
  const old = until !== undefined && until < now - OLD_MS;
  const ended = (hold) => {
    if (hold.end) return html`<${End} hold=${hold} />${hold.to ? html` <span class="at"><${Time} at=${hold.to} bare /></span>` : ''}`;
    return html`<span class="dim">${old ? 'held it at the end of this window' : 'holds it now'}</span>`;
  };
  const span = (hold) => {
    if (!hold.from) return '';
    if (hold.end) return hold.to ? duration(hold.to - hold.from) : '';
    const present = holders.find((holder) => holder.token === hold.token);
    if (present) return html`<${Age} ms=${present.held_ms} at=${present.at} />`;
    return old ? `> ${duration(Math.max(0, until - hold.from))}` : html`<${Age} ms=${Math.max(0, now - hold.from)} at=${at} />`;
  };
  return html`<div class="scroll" tabindex="0" role="group" aria-label="Holds"><table class="stack"><thead><tr>${lockColumn && html`<th>Lock</th>`}<${TimeHead} label="Granted" /><th>To client</th><th class="numeric">Held for</th><th>How it ended, by whom and why</th><th>Metadata</th><th class="numeric" title="The fencing token of the hold">Token</th><th class="numeric" title="Time between the last moment at which the former holder could act and this grant">Safety margin</th></tr></thead>
    <tbody>${list.map(
      (hold) => html`<tr key=${`${hold.lock} ${hold.token}`} class=${LOSSES.has(hold.end) ? 'lost' : ''}>
        ${lockColumn && html`<td class="key long" data-label="Lock"><${LockLink} lock=${hold.lock} /></td>`}
        <td data-label="Granted">${hold.from ? html`<${Time} at=${hold.from} bare />` : html`<span class="dim" title="its grant is not in what was read">–</span>`}</td>
        <td class="key" data-label="To client"><${ClientLink} client=${hold.client} /></td>
        <td class="numeric" data-label="Held for">${span(hold)}</td>
        <td class="end" data-label="End"><div>${ended(hold)}</div></td>
        <td class="says" data-label="Metadata"><${Brief} text=${hold.says} most=${80} /></td>
        <td class="numeric" data-label="Token">${hold.token}</td>
        <td class="numeric" data-label="Safety margin">${hold.margin != null && html`<${Margin} ms=${hold.margin} />`}</td></tr>`,
    )}</tbody></table></div>`;
}

/** Holds that their clients did not give back, the newest first: when, how, by whom and why. */
export function LossTable({ list, empty = 'None is recorded.' }) {
  if (!list.length) return html`<${Empty}>${empty}<//>`;
  return html`<div class="scroll" tabindex="0" role="group" aria-label="Losses"><table class="stack"><thead><tr><${TimeHead} label="When" /><th>Lock</th><th>Lost by</th><th>How, by whom and why</th><th class="numeric spare" title="The fencing token of the hold">Token</th></tr></thead>
    <tbody>${list.map(
      (hold) => html`<tr key=${`${hold.lock} ${hold.token}`}><td data-label="When"><${Time} at=${hold.to} bare /></td><td class="key" data-label="Lock"><${LockLink} lock=${hold.lock} /></td><td class="key" data-label="Lost by"><${ClientLink} client=${hold.client} /></td>
        <td class="end" data-label="How"><div><${End} hold=${hold} /></div></td><td class="numeric spare" data-label="Token">${hold.token}</td></tr>`,
    )}</tbody></table></div>`;
}

function Past({ lock, data, at, list, error, holders }) {
  const losses = list.filter((hold) => LOSSES.has(hold.end));
  const shown = list.slice(0, PAST_HOLDS);
  const oldest = shown.length ? shown[shown.length - 1].from || shown[shown.length - 1].to : undefined;
  const more = data && (data.before || list.length > shown.length);
  const older = href('timeline', '', oldest ? { lock, from: oldest - DAY, to: oldest + 1000 } : { lock });
  return html`<${Panel} title="Who held it" id="past" note=${data ? `the newest first: ${plural(list.length, 'hold')}, ${losses.length ? count(losses.length) : 'none'} lost` : ''}
    aside=${html`<a href=${href('timeline', '', { lock })}>Timeline of this lock</a>`}>
    <${Problem} error=${error} what="The past cannot be read" />
    ${data ? html`<${HoldTable} list=${shown} at=${at} holders=${holders} />` : !error && html`<p class="loading">Loading…</p>`}
    ${more && html`<p class="note">These are the newest ${plural(shown.length, 'hold')}${data.before ? `: only the newest ${PAST_REVISIONS} revisions of this lock were read` : ` of ${list.length}`}. <a href=${older}>Older holds: Timeline</a></p>`}
  <//>`;
}

export function Lock({ about: lock, console }) {
  const { data, at, error, reload } = useResource(path(lock), { view: 'explain', limit: 100 }, 3000);
  const past = useResource(path(lock), { view: 'history', archive: true, limit: PAST_REVISIONS });
  const list = useMemo(() => (past.data ? holds(past.data.changes).reverse() : []), [past.data]);
  // A search of the past costs a member more than the state of a lock.
  const reloadPast = useSpaced(past.reload, PAST_MS);
  // The leases of the holders, by token.
  const [leases, setLeases] = useState({});
  const told = (token, lease) => setLeases((before) => ({ ...before, [token]: lease }));
  useChanges({ name: lock }, (events) => {
    reload();
    if (!events.length || events.some((event) => event.cause !== 'queued' && event.cause !== 'left')) reloadPast();
  });
  if (!data) {
    return html`<h1 tabindex="-1"><span class="kind">Lock</span> <span class="name">${lock}</span></h1><${Problem} error=${error} />${!error && html`<p class="loading">Loading…</p>`}`;
  }
  const shown = data.lock;
  const holders = shown ? shown.holders : [];
  const shownHolders = holders.slice(0, 24);
  const first = holders[0];
  const waiting = shown ? shown.waiting : 0;
  const unknown = isUnknown(data, past.data);
  return html`<h1 tabindex="-1"><span class="kind">Lock</span> <span class="name">${lock}</span> ${!unknown && html`<${State} state=${standing(data)} />`}
      ${shown && shown.slots && html`<span class="dim">${holders.length} of ${plural(shown.slots, 'slot')}</span>`}</h1>
    ${unknown ? html`<p class="answer">No such lock is held or recorded; check the name.<${Drained} drained=${data.drained} at=${at} /></p>` : html`<${Summary} explained=${data} at=${at} list=${list} />`}
    <${Unsafe} list=${list} holders=${holders} />
    <p class="ways"><a href=${href('timeline', '', { lock })}>Timeline: who held it, and when</a>${first && html`<a href=${href('client', first.client)}>All that ${holders.length > 1 ? 'its first holder' : 'its holder'} has</a>`}</p>
    ${nested(lock) && html`<p class="note">No program asked for this lock: <code>tenure run</code> makes it so that a deadlock of nested runs is found. The inner run holds it while it waits for <${LockLink} lock=${nested(lock)} />; the outer run waits for it.</p>`}
    <${Problem} error=${error} />
    ${holders.length > 0 &&
    html`<div class="holders">${shownHolders.map(
      (holder) => html`<${Holder} key=${holder.token} holder=${holder} hold=${list.find((hold) => hold.token === holder.token)} at=${at} console=${console} told=${told} />`,
    )}${holders.length > 24 && html`<p class="dim">and ${holders.length - 24} more holders</p>`}</div>`}
    ${isDeep(data) && html`<${Panel} title="What is in the way" id="chain" note="who holds it, and what each holder waits for itself"><${WhatIsInTheWay} lock=${lock} /><//>`}
    <${Queue} lock=${lock} explained=${data} at=${at} />
    ${holders.some((holder) => holder.state !== 'delayed') && html`<${Panel} title="What can be done" id="acts">${shownHolders.map(
      (holder) => html`<div class="of-holder" key=${holder.token}>${holders.length > 1 && html`<${ClientLink} client=${holder.client} />`}<${HolderActs} lock=${lock} holder=${holder} lease=${leases[holder.token]} console=${console} waiting=${waiting} brief=${holders.length > 2} /></div>`,
    )}<//>`}
    <${Past} lock=${lock} data=${past.data} at=${past.at} list=${list} error=${past.error} holders=${holders.map((holder) => ({ ...holder, at }))} />
    <${Panel} title="In a terminal" id="commands">
      <h3>Who holds it, who waits and why:</h3><${Command} words=${['tenure', 'explain', lock]} />
      <h3>Who held it, and how that ended:</h3><${Command} words=${['tenure', 'history', lock]} />
      ${first && html`<h3 class="loss">Takes the lock away from ${first.client}, once it has stopped:</h3><${Command} words=${['tenure', 'force', lock, '--token', first.token, '--reason', { raw: '"…"' }]} />`}
    <//>`;
}
