// Calls the public HTTP API of the member that served this page.

const HEADER = { 'Tenure-Console': '1' };
const RETRIES = 3;
/** A read without an answer is given up after so long. */
const GIVE_UP_MS = 20_000;

/** A refusal or failure, as the member words it. */
export class ApiError extends Error {
  constructor(status, error) {
    super(error.message);
    this.status = status;
    this.reason = error.reason;
    this.effect = error.effect;
    this.next = error.next;
    this.retryAfterMs = error.retry_after_ms || 0;
  }
}

/** Whether an error is a refusal: asking again does not help. */
export const isAnswer = (error) => error.status >= 400 && error.status < 500 && error.status !== 429;

const listeners = new Set();

/** Calls back whenever a request is refused because the caller is not known. */
export function onSignedOut(listener) {
  listeners.add(listener);
  return () => listeners.delete(listener);
}

/** A name in a path: its slashes too, so that the browser takes no segment as `..`. */
export const name = encodeURIComponent;

function address(path, params) {
  const query = new URLSearchParams();
  for (const [key, value] of Object.entries(params || {})) {
    if (value !== undefined && value !== null && value !== '') query.set(key, value);
  }
  const text = query.toString();
  return text ? `${path}?${text}` : path;
}

async function refusal(response) {
  let error = { reason: 'HTTP', message: `the member answered ${response.status}`, effect: 'unknown' };
  try {
    error = (await response.json()).error || error;
  } catch {
    // Not JSON: something between this page and the member answered.
  }
  if (response.status === 401) listeners.forEach((listener) => listener(error));
  return new ApiError(response.status, error);
}

const unanswered = () => new ApiError(0, { reason: 'UNREACHABLE', message: 'this member does not answer', effect: 'unknown' });

// A request that its caller does not need any more ends with an `AbortError`. Every other end without an answer is the
// member's, whatever the browser calls it.
function failed(error, signal) {
  if (signal && signal.aborted) throw error;
  const foreign = error instanceof SyntaxError;
  throw foreign ? new ApiError(0, { reason: 'HTTP', message: 'what answered is not a member', effect: 'unknown' }) : unanswered();
}

async function ask(method, path, params, { body, headers, signal } = {}) {
  const init = { method, headers: { ...HEADER, ...headers }, signal, cache: 'no-store', credentials: 'same-origin' };
  if (body !== undefined) {
    init.headers['Content-Type'] = 'application/json';
    init.body = JSON.stringify(body);
  }
  const response = await fetch(address(path, params), init).catch((error) => failed(error, signal));
  const date = Date.parse(response.headers.get('date') || '');
  if (date) ahead = date - Date.now();
  if (!response.ok) throw await refusal(response);
  return response;
}

// How far the wall clock of the member is ahead of that of this browser, to a second or two.
let ahead = 0;

/** The wall clock of the member, as it was with its last answer. */
export const memberNow = () => Date.now() + ahead;

let searching = Promise.resolve();

/**
 * Reads. Searches of the archive wait for each other; `sent` is called when the request leaves.
 */
export function get(path, params, signal, sent) {
  const searches = path === '/v1/history' || (params && params.archive);
  if (!searches) return read(path, params, signal, sent);
  const search = searching.then(() => {
    if (signal && signal.aborted) throw new DOMException('not needed any more', 'AbortError');
    return read(path, params, signal, sent);
  });
  searching = search.catch(() => undefined);
  return search;
}

// Reads once, and gives up if the answer does not come, or not all of it.
async function once(path, params, caller) {
  const late = AbortSignal.timeout(GIVE_UP_MS);
  const signal = caller ? AbortSignal.any([caller, late]) : late;
  try {
    return await (await ask('GET', path, params, { signal })).json();
  } catch (error) {
    throw error instanceof ApiError ? error : failed(error, caller);
  }
}

// Asks again for a while if the member has too much to do.
async function read(path, params, signal, sent) {
  if (sent) sent();
  for (let attempt = 0; ; attempt += 1) {
    try {
      return await once(path, params, signal);
    } catch (error) {
      const busy = error.reason === 'OVERLOADED' && attempt < RETRIES;
      if (!busy) throw error;
      await new Promise((resolve) => setTimeout(resolve, Math.min(error.retryAfterMs || 200, 2000)));
    }
  }
}

let principal = '';

/** Names the principal that the member takes this page's user for. */
export function actsAs(name) {
  principal = name || '';
}

/** Who acts, for the record. */
export const actor = () => principal || 'console';

/** Acts: never with GET, and never twice. */
export async function act(method, path, params, body) {
  return (await ask(method, path, params, { body })).json();
}

/** Opens a stream of server-sent events. */
export async function stream(path, params, lastId, signal) {
  const headers = { Accept: 'text/event-stream' };
  if (lastId) headers['Last-Event-ID'] = lastId;
  return (await ask('GET', path, params, { headers, signal })).body.getReader();
}

/** Exchanges an API key or token, in a header, for a session cookie. */
export async function signIn(key) {
  return (await ask('POST', '/v1/console/session', {}, { headers: { Authorization: `Bearer ${key}` } })).json();
}

export async function signOut() {
  return act('DELETE', '/v1/console/session');
}

const answers = new Map();

/** Whether the caller may do something with a name (empty: the cluster); kept for a minute. */
export async function can(verb, lock) {
  const key = `${verb} ${lock}`;
  const known = answers.get(key);
  if (known && Date.now() - known.at < 60_000) return known.allowed;
  const { allowed } = await get('/v1/access/can', { verb, name: lock });
  answers.set(key, { allowed, at: Date.now() });
  return allowed;
}

export function forgetPermissions() {
  answers.clear();
}
