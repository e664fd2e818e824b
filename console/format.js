// Words for durations, times, sizes and causes.

const UNITS = [
  ['d', 86_400_000],
  ['h', 3_600_000],
  ['m', 60_000],
  ['s', 1000],
];

/** A duration in its two largest units: `4m12s`, `31s`, `0.8s`. Never longer than really passed. */
export function duration(ms) {
  if (ms == null || Number.isNaN(ms)) return '';
  if (ms < 0) return '0s';
  if (ms < 1000) return ms < 100 ? `${Math.floor(ms)}ms` : `${(Math.floor(ms / 100) / 10).toFixed(1)}s`;
  const at = UNITS.findIndex(([, size]) => ms >= size);
  const [unit, size] = UNITS[at];
  const rest = UNITS[at + 1];
  const more = rest ? Math.floor((ms % size) / rest[1]) : 0;
  return `${Math.floor(ms / size)}${unit}${more ? `${more}${rest[0]}` : ''}`;
}

const two = (number) => String(number).padStart(2, '0');

const dayOf = (date) => `${date.getFullYear()}-${two(date.getMonth() + 1)}-${two(date.getDate())}`;
const timeOf = (date, seconds) => `${two(date.getHours())}:${two(date.getMinutes())}${seconds ? `:${two(date.getSeconds())}` : ''}`;

/** A time for axes: the day only if it is not today. */
export function local(date, seconds = true) {
  const time = timeOf(date, seconds);
  return date.toDateString() === new Date().toDateString() ? time : `${dayOf(date)} ${time}`;
}

/** A time in the zone of this browser with its day: today, yesterday, or its date. */
export function when(date, now = new Date()) {
  const yesterday = new Date(now);
  yesterday.setDate(yesterday.getDate() - 1);
  const said = [[now, 'today'], [yesterday, 'yesterday']].find(([day]) => dayOf(day) === dayOf(date));
  return `${said ? said[1] : dayOf(date)} ${timeOf(date, true)}`;
}

/** The zone of this browser at a time: `UTC`, `UTC+1`, `UTC-3:30`. */
export function zone(date = new Date()) {
  const east = -date.getTimezoneOffset();
  const [hours, minutes] = [Math.floor(Math.abs(east) / 60), Math.abs(east) % 60];
  return east ? `UTC${east < 0 ? '-' : '+'}${hours}${minutes ? `:${two(minutes)}` : ''}` : 'UTC';
}

export const utc = (date) => `${date.toISOString().replace('T', ' ').replace('Z', '')} UTC`;

/** The value of an `<input type=datetime-local>`. */
export function forInput(date) {
  return `${dayOf(date)}T${timeOf(date, true)}`;
}

export function bytes(number) {
  if (number == null) return '';
  const units = ['B', 'kB', 'MB', 'GB', 'TB'];
  let at = 0;
  let rest = number;
  while (rest >= 1000 && at < units.length - 1) {
    rest /= 1000;
    at += 1;
  }
  return `${rest >= 100 || at === 0 ? Math.round(rest) : rest.toFixed(1)} ${units[at]}`;
}

export const count = (number) => (number == null ? '' : Number(number).toLocaleString('en-US'));
export const plural = (number, one, many = `${one}s`) => `${count(number)} ${number === 1 ? one : many}`;

export function rate(perSecond) {
  if (perSecond == null) return '–';
  if (perSecond >= 10) return count(Math.round(perSecond));
  return perSecond === 0 ? '0' : perSecond.toFixed(perSecond < 1 ? 2 : 1);
}

/** What happened, in words. */
export const CAUSES = {
  granted: 'granted',
  released: 'released',
  expired: 'expired: not renewed in time',
  revoked: 'lease revoked',
  forced: 'taken away',
  max_hold: 'held for its longest allowed time',
  no_progress: 'no progress in the promised time',
  cooled: 'revocation over',
  delay_over: 'lock-delay over',
  min_hold_over: 'min hold over',
  downgraded: 'became shared',
  upgraded: 'became exclusive',
  handed_on: 'given to a client that waited',
  updated: 'new metadata',
  queued: 'queued',
  left: 'left the queue',
  wait_timeout: 'waited as long as it wanted to',
  vacant: 'vacant',
  deadlock: 'refused: deadlock',
  drained: 'closed to new holders',
  undrained: 'opened again',
  superseded: 'replaced by a newer request',
  granted_elsewhere: 'got another of its locks',
  too_many_slots: 'wanted more slots than are left',
  resized: 'number of slots set',
  history_compacted: 'history compacted',
  unrecorded: 'not recorded: before the next grant',
};
export const cause = (word) => CAUSES[word] || word;
export const LOSSES = new Set(['expired', 'revoked', 'forced', 'max_hold', 'no_progress']);

/** An argument as a shell takes it unchanged. */
export const quoted = (text) => (/^[\w@%+=:,./-]+$/.test(text) ? text : `'${text.replaceAll("'", "'\\''")}'`);

/** The real lock, of one that a nested `tenure run` holds while it waits; of others nothing. */
export const nested = (lock) => (/^(.+)\/\.nested\/\d+$/.exec(lock) || [])[1];

/** Metadata or a value: text, or its size if it is not text. */
export function content(text, base64) {
  if (text) return text;
  return base64 ? `${Math.floor((base64.length * 3) / 4)} bytes, not text` : '';
}
