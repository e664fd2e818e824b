// What is wrong with a cluster, in words: the checks of `tenure doctor` that a browser can make.

import { memberNow } from './api.js';
import { bytes, duration, plural } from './format.js';

const BEHIND = 1_000;
const FULL = 128_000_000;
const TIGHT = 1_000_000_000;
const SLOW_US = 20_000;
const BAD_US = 250_000;
const DAY = 86_400_000;
/** So long before a certificate expires it is said. */
const SOON = 14 * DAY;

/** Whether a certificate needs attention: `bad` if it has expired, `warn` if it soon will. */
export function certificateLevel(expires) {
  const left = expires - memberNow();
  return left <= 0 ? 'bad' : left < SOON ? 'warn' : undefined;
}

/** Findings, the worst first: `{ level: 'bad' | 'warn' | 'ok', what, next }`. */
export function findings(status) {
  const found = [];
  const say = (level, what, next, agrees, down) => found.push({ level, what, next, agrees, down });
  const voters = status.members.filter((member) => member.role === 'leader' || member.role === 'follower');
  const up = voters.filter((member) => member.up).length;
  const all = voters.length;
  const missing = Math.floor(all / 2) + 1 - up;
  if (missing > 0) {
    const down = voters.filter((member) => !member.up).map((member) => member.name || member.member_id);
    say('bad', `no majority: ${up} of ${plural(all, 'member')} up; nothing is granted, renewed or written`, `start ${down.join(', ')}`, true);
  } else if (!status.leader) {
    say('bad', 'no leader', 'wait a few seconds; if it lasts, the members do not reach each other: look at their logs', true);
  } else if (all === 1) {
    say('ok', 'one member alone: nothing survives its failure, which is fine for development', undefined, true);
  } else if (status.survives === 0) {
    say('warn', `${up} of ${all} members up: one more failure stops everything`, 'bring the others back first', true);
  } else {
    say('ok', `${up} of ${all} members up, survives ${plural(status.survives, 'failure')}; ${status.leader.name} leads`, undefined, true);
  }
  if (status.quiet_ms) say('warn', `restored: nothing is granted for ${duration(status.quiet_ms)}`, 'wait, or see the guide to restoring');
  for (const member of status.members) {
    const name = member.name || member.member_id;
    if (!member.up) {
      if (missing <= 0) say('bad', `${name} does not answer`, `start it, or replace it: tenure cluster remove ${name}`, false, true);
      continue;
    }
    const expires = member.certificate_expires_ms;
    const level = expires != null && certificateLevel(expires);
    if (level) {
      const left = expires - memberNow();
      say(level, `the certificate of ${name} ${left > 0 ? `expires in ${duration(left)}` : `expired ${duration(-left)} ago`}`, `put a new one in its place on ${name}: connections made from then on use it`);
    }
    if (member.state === 'out of space') say('bad', `${name} is out of space: it takes nothing that makes the state grow`, `free space on ${name} now`);
    if (member.behind > BEHIND) say('warn', `${name} is ${plural(member.behind, 'entry', 'entries')} behind`);
    const free = member.disk_free_bytes;
    if (free != null && free < FULL) say('bad', `${name} has ${bytes(free)} of disk left`, 'free space now: a full disk takes nothing that makes the state grow');
    else if (free != null && free < TIGHT) say('warn', `${name} has ${bytes(free)} of disk left`, `free space on ${name}`);
    const sync = member.fsync_p99_us;
    if (sync >= SLOW_US) {
      const what = `${name} has a slow disk: 1 of 100 fsyncs takes ${duration(sync / 1000)} or longer`;
      say(sync >= BAD_US ? 'bad' : 'warn', what, 'use a faster disk, or one that no other program uses');
    }
  }
  const versions = [...new Set(status.members.map((member) => member.software).filter(Boolean))];
  if (versions.length > 1) say('warn', `members run ${versions.join(' and ')}`, 'upgrade the others, one by one');
  if (status.insecure) say('warn', 'the cluster accepts every caller, in plaintext', 'make certificates: tenure help certificates');
  const rank = { bad: 0, warn: 1, ok: 2 };
  // Among equals, first whether a majority agrees, then who is down.
  const order = (it) => rank[it.level] * 2 + (it.agrees || it.down ? 0 : 1);
  return found.sort((one, other) => order(one) - order(other));
}
