/** Defines the options of clients and lock requests, and checks them before anything is sent. */
import type { Settings } from "./core.js";
import { Credentials, type CredentialSource } from "./credentials.js";
import { milliseconds, optionalMilliseconds, type Duration } from "./duration.js";
import { Invalid } from "./errors.js";
import type { HeldLock } from "./guard.js";
import { LeaseTiming, LeaseTimingError } from "./lease_timing.js";
import { checkedName } from "./names.js";
import { platform, type TlsFiles } from "./platform/platform.js";
import { contentFields, type Content, type SlotFields, type WireAcquire } from "./wire.js";

/** The address to connect to if none is configured. */
const LOOPBACK = "127.0.0.1:7450";
/** The default bound on one request, and on the search for a member. */
const TIMEOUT_MS = 10_000;
/** The default ttl of a lease. */
const TTL_MS = 15_000;

/** The times of a lease. */
export interface LeaseTimes {
  /** How long the lease lives in the cluster after a renewal: 1 s to 1 h, 15 s unless set. */
  ttl?: Duration;
  /** How long the client relies on the lease after a renewal. Half of the ttl unless set. */
  window?: Duration;
  /** How long the work takes to stop once it is told to. What does not fit the ttl is refused, not shortened. */
  grace?: Duration;
}

/** The settings of a client. */
export interface ClientOptions extends LeaseTimes {
  /**
   * The members' addresses, `host:port` or `https://host:port`: a list, or text with commas between. With `https://` and
   * without `ca`, the authorities that the runtime trusts count.
   */
  addresses?: string | readonly string[];
  /** The client's name, which others see. The program, the host and the process id unless set. */
  name?: string;
  /** How long a request may take, and how long the client looks for a member. 10 s unless set. */
  timeout?: Duration;
  /** The file with the authority that signs the members' certificates, in PEM form. With it, every session is under TLS. */
  ca?: string;
  /** The files with the client's own certificate and private key, where members ask for one. */
  cert?: string;
  key?: string;
  /** An API key (`tenure_…`). */
  apiKey?: string;
  /** A file with a bearer token (JWT). It is read again for every connection. */
  tokenFile?: string;
  /** Sends credentials to other machines in plain text, too. Every machine on the way can read and use them then. */
  insecureCredentials?: boolean;
  /** Returns the W3C `traceparent` of the caller's span, for members that export traces. Renewals carry none. */
  traceparent?: () => string | undefined;
}

/** The options of a lock request. */
export interface LockOptions extends LeaseTimes {
  /** How long to queue at most: no limit unless set, 0 for not at all. */
  wait?: Duration;
  /** Bounds the whole request, whatever it waits for. */
  timeout?: Duration;
  /** Cancels the request: the client leaves the queue, and gives back what may have been granted meanwhile. */
  signal?: AbortSignal;
  /** Together with other shared holders, never together with an exclusive one. */
  shared?: boolean;
  /** As one of so many slots of a semaphore. */
  slots?: number;
  /**
   * So many of the `slots`, all at once or none: each is one of `guard.locks`, with a token of its own. No request passes
   * one that waits for more slots than are free. More than one needs feature level 11.
   */
  take?: number;
  /**
   * How urgent it is, from 0 (the default) to 9: the request stands in the queue as if it had asked 30 seconds earlier for
   * each step. A request that does not wait passes no other. Where identity is enabled, the caller needs the verb `force`.
   */
  priority?: number;
  /**
   * The group whose older requests for the same lock this one replaces if it has to wait: they are refused with
   * `SUPERSEDED`. For work of which only the newest matters. A holder is never replaced.
   */
  supersede?: string;
  /** What the grant carries, for others to read. */
  metadata?: Content;
  /** How long the lock may be held at most; longer than the ttl. The cluster then takes it away. */
  maxHold?: Duration;
  /**
   * The least time from the grant to the next grant, even if the lock is released earlier: for work that must not run
   * twice within a period. A job that a timer starts once per hour takes somewhat less than an hour.
   */
  minHold?: Duration;
  /**
   * Promises progress: after the grant, and after each report, `guard.progress` reports a larger number within this time.
   * A holder that is alive but stuck loses the lock with the cause `no_progress`.
   */
  progressWithin?: Duration;
  /** How long the lock is withheld from others after a hold that its holder did not end itself. */
  lockDelay?: Duration;
  /** Other tasks of the lease go on while this one waits, so deadlock detection ignores this wait. */
  independent?: boolean;
  /** Hears how many are ahead when the request has to queue, and again after a reconnect. */
  onQueued?: (ahead: number) => void;
  /**
   * Raises the fence at the resource for each lock before the guard is handed out: from then on the previous holder cannot
   * write there. If it throws, or takes longer than the client's timeout, the lock is given back, and the request fails
   * with {@link FenceFailed}. The signal aborts when the request is cancelled or the lock is lost.
   */
  fence?: (lock: HeldLock, signal: AbortSignal) => unknown;
}

/** The options of a request for a pool: its slots have modes of their own. */
export type PoolOptions = Omit<LockOptions, "shared" | "slots">;

/** Which of the named locks a request is for: all of them, any one of them, or any slot of a pool with this prefix. */
export type Choice = "all" | "any" | "pool";

/** The options of an upgrade. */
export type UpgradeOptions = Pick<LockOptions, "wait" | "timeout" | "signal" | "independent" | "onQueued">;

/** A lock request, checked. */
export interface LockRequest {
  /** The locks, or the prefix of a pool. */
  readonly locks: readonly string[];
  readonly choice: Choice;
  readonly mode: "exclusive" | "shared" | "slot";
  /** Which slots to hold, as the message has it. */
  readonly how: SlotFields;
  readonly waitMs: number | undefined;
  readonly timeoutMs: number | undefined;
  readonly signal: AbortSignal | undefined;
  readonly onQueued: ((ahead: number) => void) | undefined;
  readonly fence: ((lock: HeldLock, signal: AbortSignal) => unknown) | undefined;
  readonly timing: LeaseTiming;
  /** The fields that go into the message as they are. */
  readonly extra: WireAcquire;
}

/** Checks a lock request. */
export function lockRequest(
  settings: Settings,
  locks: string | readonly string[],
  options: LockOptions,
  { election = false, choice = "all" }: { election?: boolean; choice?: Choice } = {},
): LockRequest {
  const names = (typeof locks === "string" ? [locks] : [...locks]).map(checkedName);
  if (names.length === 0) throw new Invalid("INVALID_FIELD", "locks: there is none");
  if (new Set(names).size < names.length) throw new Invalid("DUPLICATE_LOCK", "the same lock twice in one request");
  const { shared, slots, take, priority, supersede } = options;
  if (choice === "pool" && (shared || slots !== undefined)) {
    throw new Invalid("INVALID_FIELD", "a pool goes without shared and slots: its slots have their own");
  }
  if (shared && slots !== undefined) throw new Invalid("INVALID_FIELD", "shared excludes slots");
  if (slots !== undefined && !(Number.isSafeInteger(slots) && slots > 0)) {
    throw new Invalid("INVALID_SLOTS", "slots is a number of at least 1");
  }
  const hasSlots = slots !== undefined || choice === "pool";
  if (take !== undefined && !(hasSlots && Number.isSafeInteger(take) && take > 0)) {
    throw new Invalid("INVALID_FIELD", "take is a number of at least 1, and goes with slots");
  }
  const extra: WireAcquire = {};
  if (priority !== undefined && !(Number.isSafeInteger(priority) && priority >= 0 && priority <= 9)) {
    throw new Invalid("INVALID_FIELD", "priority is a number from 0 to 9");
  }
  if (priority) extra.priority = priority;
  if (supersede !== undefined) extra.supersede = checkedName(supersede);
  const minHoldMs = optionalMilliseconds(options.minHold, "minHold");
  if (minHoldMs) extra.min_hold_ms = Math.ceil(minHoldMs);
  const progressWithinMs = optionalMilliseconds(options.progressWithin, "progressWithin");
  if (progressWithinMs) extra.progress_within_ms = Math.ceil(progressWithinMs);
  if (options.metadata !== undefined) Object.assign(extra, contentFields(options.metadata, "metadata"));
  const maxHoldMs = optionalMilliseconds(options.maxHold, "maxHold");
  if (maxHoldMs !== undefined) extra.max_hold_ms = Math.ceil(maxHoldMs);
  const lockDelayMs = optionalMilliseconds(options.lockDelay, "lockDelay");
  if (lockDelayMs !== undefined) extra.lock_delay_ms = Math.ceil(lockDelayMs);
  if (election) extra.election = true;
  if (options.independent) extra.independent = true;
  return {
    locks: names,
    choice,
    mode: shared ? "shared" : slots === undefined ? "exclusive" : "slot",
    how: { ...(slots === undefined ? {} : { slots }), ...(take === undefined ? {} : { take }) },
    waitMs: optionalMilliseconds(options.wait, "wait"),
    timeoutMs: optionalMilliseconds(options.timeout, "timeout"),
    signal: options.signal,
    onQueued: options.onQueued,
    fence: options.fence,
    timing: timingOf(settings, options),
    extra,
  };
}

/** Computes the timing of a new lease from the client's settings and the request's options. */
export function timingOf(settings: Settings, times: LeaseTimes): LeaseTiming {
  const us = (value: Duration | undefined, field: string): number | undefined =>
    value === undefined ? undefined : Math.round(milliseconds(value, field) * 1_000);
  const ttlUs = us(times.ttl, "ttl") ?? settings.ttlUs;
  return checkedTiming(ttlUs, us(times.window, "window") ?? settings.windowUs, us(times.grace, "grace") ?? settings.graceUs);
}

function checkedTiming(ttlUs: number, windowUs: number | undefined, graceUs: number | undefined): LeaseTiming {
  try {
    return new LeaseTiming(ttlUs, windowUs, graceUs);
  } catch (error) {
    if (error instanceof LeaseTimingError) throw new Invalid(`INVALID_${error.kind.toUpperCase()}`, error.message);
    throw error;
  }
}

/** Checks the settings of a client. */
export function settingsOf(options: ClientOptions): Settings {
  const given = options.addresses ?? [];
  const listed = (typeof given === "string" ? given.split(",") : [...given]).map((it) => it.trim()).filter((it) => it);
  const tls = tlsOf(options, listed.some((it) => it.startsWith("https://")));
  const credentials = new Credentials(sourceOf(options), options.insecureCredentials ?? false);
  const addresses = (listed.length > 0 ? listed : [LOOPBACK]).map((address) => {
    const bare = plainAddress(address, tls);
    credentials.mayGoTo(bare, tls !== undefined);
    return bare;
  });
  const ttlUs = Math.round(milliseconds(options.ttl ?? TTL_MS, "ttl") * 1_000);
  const us = (value: Duration | undefined, field: string): number | undefined =>
    value === undefined ? undefined : Math.round(milliseconds(value, field) * 1_000);
  const windowUs = us(options.window, "window");
  const graceUs = us(options.grace, "grace");
  checkedTiming(ttlUs, windowUs, graceUs);
  return {
    addresses,
    name: options.name ?? platform().clientName(),
    timeoutMs: milliseconds(options.timeout ?? TIMEOUT_MS, "timeout"),
    ttlUs,
    windowUs,
    graceUs,
    tls,
    credentials,
    traceparent: options.traceparent,
  };
}

/**
 * Reads the environment: `TENURE_ADDR` has addresses separated by commas; `TENURE_CA`, `TENURE_CERT` and `TENURE_KEY`
 * name files; `TENURE_API_KEY` is an API key, or else `TENURE_API_KEY_FILE` names a file that has one, or else
 * `TENURE_TOKEN_FILE` names a file with a bearer token.
 */
export function optionsFromEnvironment(): ClientOptions {
  const read = (name: string): string | undefined => platform().environment(name) || undefined;
  const options: ClientOptions = {};
  const addresses = read("TENURE_ADDR");
  if (addresses !== undefined) options.addresses = addresses;
  const [ca, cert, key] = [read("TENURE_CA"), read("TENURE_CERT"), read("TENURE_KEY")];
  if (ca !== undefined) options.ca = ca;
  if (cert !== undefined && key !== undefined) Object.assign(options, { cert, key });
  const apiKey = read("TENURE_API_KEY");
  const apiKeyFile = read("TENURE_API_KEY_FILE");
  const tokenFile = read("TENURE_TOKEN_FILE");
  if (apiKey !== undefined) options.apiKey = apiKey;
  else if (apiKeyFile !== undefined) options.apiKey = fileText(apiKeyFile);
  else if (tokenFile !== undefined) options.tokenFile = tokenFile;
  return options;
}

function fileText(path: string): string {
  try {
    return platform().readFile(path);
  } catch (error) {
    const why = error instanceof Error ? error.message : String(error);
    throw new Invalid("INVALID_FIELD", `cannot read ${path}: ${why}`);
  }
}

function tlsOf(options: ClientOptions, isNamed: boolean): TlsFiles | undefined {
  const { ca, cert, key } = options;
  if (ca === undefined && !isNamed) return undefined;
  if ((cert === undefined) !== (key === undefined)) throw new Invalid("INVALID_FIELD", "cert and key belong together");
  return { ...(ca === undefined ? {} : { ca }), ...(cert === undefined ? {} : { cert }), ...(key === undefined ? {} : { key }) };
}

function sourceOf(options: ClientOptions): CredentialSource {
  if (options.apiKey !== undefined) return Credentials.apiKey(options.apiKey);
  if (options.tokenFile !== undefined) return { kind: "token_file", path: options.tokenFile };
  return { kind: "none" };
}

/** `host:port` of an address. All sessions use TLS or none does: a mix would be worse than plain text everywhere. */
function plainAddress(address: string, tls: TlsFiles | undefined): string {
  const found = /^(?:(https?):\/\/)?([^/]+?)\/?$/.exec(address);
  const [scheme, host] = [found?.[1], found?.[2]];
  if (host === undefined || !/:\d+$/.test(host)) {
    throw new Invalid("INVALID_FIELD", `addresses: ${address} is not host:port`);
  }
  if (scheme === "http" && tls !== undefined) {
    throw new Invalid("INVALID_FIELD", `${address} is plain, and others are under TLS`);
  }
  return host;
}
