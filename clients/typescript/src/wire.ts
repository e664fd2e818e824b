/** Defines the messages of the JSON session, as far as the client reads or writes them. */

/** A token, revision or id: a decimal string, because doubles round large numbers. */
export type Decimal = string;

/** Who has a lock, as shown to a client that does not. */
export interface Holder {
  readonly client: string;
  readonly token: Decimal;
  readonly lease?: Decimal;
  readonly held_ms: number;
  readonly left_ms?: number;
  readonly state?: "held" | "cooling" | "delayed" | "resting";
}

/** One step of a ring of waits. */
export interface RingLink {
  readonly client: string;
  readonly lease: Decimal;
  readonly lock: string;
}

/** Why something was not done, and what may be concluded. */
export interface WireError {
  readonly reason: string;
  readonly message: string;
  readonly effect: "none" | "unknown";
  readonly retry_after_ms?: number;
  readonly holder?: Holder;
  readonly ring?: readonly RingLink[];
  readonly revision?: Decimal;
  readonly next?: string;
  readonly leader?: WireLeader;
}

export interface WireLeader {
  readonly member_id: Decimal;
  readonly name: string;
  readonly address: string;
}

export interface Holding {
  readonly lock: string;
  readonly token: Decimal;
  readonly slot?: number;
}

export interface WireLease {
  readonly lease: Decimal;
  readonly created: Decimal;
  readonly ttl_ms: number;
}

/** What is granted: one lock stands alone, several are in a list. */
export interface WireGrant {
  readonly lock?: string;
  readonly token?: Decimal;
  readonly slot?: number;
  readonly locks?: readonly Holding[];
}

export interface Acquired extends WireGrant {
  readonly lease?: WireLease;
}

export interface Queued {
  readonly ahead: number;
  readonly lease?: WireLease;
}

export interface Renewed {
  readonly lease: Decimal;
  readonly ttl_ms: number;
  readonly changed: Decimal;
}

export interface LeaseShown {
  readonly lease: Decimal;
  readonly changed: Decimal;
  readonly holds: readonly Holding[];
}

export interface Header {
  readonly cluster_id: Decimal;
  readonly member_id: Decimal;
  readonly revision: Decimal;
}

/** How far the work under a grant has come, and when it must have come further. */
export interface ProgressShown {
  /** The largest number reported; 0 before the first. */
  readonly number: Decimal;
  /** Within how much time a larger one must follow, and in how much time it is due. */
  readonly within_ms: number;
  readonly left_ms: number;
  /** How long ago the number was reported; before the first one, how long ago the lock was granted. */
  readonly still_ms: number;
}

/** One grant in force. */
export interface HolderShown {
  readonly client: string;
  readonly lease: Decimal;
  /** The revision that created the lease. */
  readonly lease_created: Decimal;
  /** The queue position that was granted. */
  readonly place: Decimal;
  readonly token: Decimal;
  readonly held_ms: number;
  readonly mode: "exclusive" | "shared" | "slot";
  readonly state: "held" | "cooling" | "delayed" | "resting";
  readonly slot?: number;
  /** While it is cooling, delayed or resting: for how much longer at most. */
  readonly left_ms?: number;
  /** How long ago its lease was renewed; absent once the lease has ended. */
  readonly renewed_ms?: number;
  readonly metadata?: string;
  readonly metadata_base64?: string;
  readonly election?: boolean;
  /** The lock-delay that follows an involuntary end. */
  readonly lock_delay_ms: number;
  /** How long it may be held at most; absent for no limit. */
  readonly max_hold_ms?: number;
  /** The least time from the grant to the next grant; absent if there is none. */
  readonly min_hold_ms?: number;
  /** Absent if the holder promised no progress. */
  readonly progress?: ProgressShown;
}

/** A lock, its holders and how many wait. */
export interface LockShown {
  readonly lock: string;
  readonly holders: readonly HolderShown[];
  readonly waiting: number;
  readonly created: Decimal;
  readonly modified: Decimal;
  readonly version: number;
  readonly slots?: number;
  /** Whether an operator set that number, so that the numbers in requests do not count. */
  readonly sized?: boolean;
}

/** One position in a lock's queue. */
export interface WaiterShown {
  readonly client: string;
  /** Its lease: what {@link Guard.handOn} takes. */
  readonly lease: Decimal;
  readonly place: Decimal;
  /** How many are before it, and the position directly before it. */
  readonly ahead: number;
  readonly behind?: Decimal;
  readonly waiting_ms: number;
  /** For how much longer it will wait; absent for no limit. */
  readonly left_ms?: number;
  /** The revision at which it came. */
  readonly created: Decimal;
  readonly mode: "exclusive" | "shared" | "slot";
  /** With mode `slot`: of how many, and how many of them it asks for; absent for one. */
  readonly slots?: number;
  readonly take?: number;
  /** Whether it is a candidacy. */
  readonly election?: boolean;
  /** Every lock of the request, and whether one of them is enough. */
  readonly locks: readonly string[];
  readonly any?: boolean;
  /** The prefix of the pool whose slots these locks are. */
  readonly pool?: string;
  /** The group whose next request replaces it. */
  readonly supersede?: string;
  /** Its priority; absent for 0. */
  readonly priority?: number;
  /** For how much longer new requests with a higher priority may pass it; absent if none can any more. */
  readonly passable_ms?: number;
}

/** One step of a chain of waits: this client has this lock. */
export interface ChainStep {
  readonly lock: string;
  readonly client: string;
  readonly lease: Decimal;
}

/** Who has a lock, who waits for it, and when it can be free. */
export interface Explained {
  /** The revision that the answer is based on. */
  readonly revision: bigint;
  /** Absent if no client holds or awaits it. */
  readonly lock?: LockShown;
  /** The first few of the queue; with a lease of the caller, those before it. */
  readonly ahead: readonly WaiterShown[];
  /** The position of that lease itself. */
  readonly own?: WaiterShown;
  /** Which client waits for which, from the lock's first holder on, and whether it goes on beyond what is shown. */
  readonly chain: readonly ChainStep[];
  readonly chain_goes_on?: boolean;
  /** When it is free if its holders stop renewing, or else when it is free whatever they do. */
  readonly free_if_silent_ms?: number;
  readonly free_at_latest_ms?: number;
  /** The median of the last holds that the answering member has seen end, and of how many. */
  readonly usually_held_ms?: number;
  readonly usually_of?: number;
  /** How long the cluster grants no locks, because it was restored. */
  readonly quiet_ms?: number;
  /** The closed prefix that the lock is below, without its holders. While there is one, the lock is not granted. */
  readonly drained?: DrainShown;
  /**
   * For how long the cluster has served the queues again, because a prefix was opened or the quiet time after a restore is
   * over, if this lock can be granted and its turn is still to come.
   */
  readonly reopening_ms?: number;
}

/** A prefix that is closed to new grants. */
export interface DrainShown {
  /** The prefix; empty if it is that of every lock. */
  readonly prefix: string;
  /** How long ago it was closed. */
  readonly drained_ms: number;
  /** The name that the operator gave. */
  readonly by?: string;
  /** The authenticated caller that closed it. */
  readonly principal?: string;
  readonly reason?: string;
  /** The revision that closed it. */
  readonly created: Decimal;
  /** How many holders below it may still be at work. */
  readonly holders?: number;
  /** There are more holders than were counted. */
  readonly more_holders?: boolean;
}

export interface WireKey {
  readonly key: string;
  readonly value?: string;
  readonly value_base64?: string;
  readonly created: Decimal;
  readonly modified: Decimal;
  readonly version: number;
  readonly lease?: Decimal;
}

/** The answer to one request: its id, and exactly one of the results. */
export interface Answer {
  readonly id: number;
  readonly revision?: Decimal;
  readonly error?: WireError;
  readonly acquired?: Acquired;
  readonly queued?: Queued;
  readonly ended?: object;
  readonly lease_granted?: WireLease;
  readonly renewed?: readonly Renewed[];
  readonly released?: object;
  readonly revoked?: object;
  readonly stopped?: object;
  readonly left?: { readonly held?: readonly Holding[] };
  readonly downgraded?: { readonly token: Decimal };
  readonly updated?: { readonly version: number };
  readonly forced?: { readonly lock: string; readonly left_ms: number };
  readonly put?: { readonly key: string; readonly version: number; readonly created: Decimal };
  readonly deleted?: { readonly key: string; readonly existed: boolean };
  readonly key?: { readonly key?: WireKey };
  readonly lock?: { readonly lock?: LockShown };
  readonly lease?: { readonly lease?: LeaseShown };
  readonly explained?: Omit<Explained, "revision">;
  readonly handed_on?: { readonly token: Decimal };
  readonly progressed?: { readonly left_ms?: number };
  readonly resized?: object;
  readonly drained?: object;
  readonly undrained?: { readonly existed: boolean };
}

export interface Granted extends WireGrant {
  readonly id?: number;
  readonly lease?: Decimal;
  readonly revision: Decimal;
}

/** A wait ended without a grant. Without a reason, its time is over. */
export interface WaitEnded {
  readonly id?: number;
  /** The client and the lease of the newer request of its group that has replaced it. */
  readonly superseded_by?: string;
  readonly superseded_by_lease?: Decimal;
  readonly error?: WireError;
}

export interface WireLost {
  readonly lock: string;
  readonly token: Decimal;
  readonly lease?: Decimal;
  readonly cause: string;
  readonly by?: string;
  readonly reason?: string;
}

export interface LeaseEnded {
  readonly lease: Decimal;
  readonly cause: string;
  readonly by?: string;
  readonly reason?: string;
}

export interface Welcome {
  readonly header: Header;
  readonly member: string;
  readonly epoch: number;
  readonly incarnation: Decimal;
  readonly leader?: WireLeader;
  readonly leases?: readonly WireLease[];
  readonly requests_per_message_max: number;
  readonly message_bytes_max: number;
}

export interface ServerMessage {
  readonly welcome?: Welcome;
  readonly revision?: Decimal;
  readonly answers?: readonly Answer[];
  readonly grants?: readonly Granted[];
  readonly losses?: readonly WireLost[];
  readonly waits_ended?: readonly WaitEnded[];
  readonly leases_ended?: readonly LeaseEnded[];
  readonly leader?: WireLeader;
  readonly closing?: WireError;
}

/** Which slots of a semaphore are asked for. */
export interface SlotFields {
  slots?: number;
  take?: number;
}

export interface WireAcquire extends SlotFields {
  lock?: string;
  any?: true;
  pool?: string;
  locks?: (({ lock: string; mode?: string } & SlotFields) | string)[];
  lease?: Decimal;
  new_lease?: WireNewLease;
  mode?: string;
  wait_ms?: number;
  metadata?: string;
  metadata_base64?: string;
  max_hold_ms?: number;
  lock_delay_ms?: number;
  min_hold_ms?: number;
  progress_within_ms?: number;
  priority?: number;
  supersede?: string;
  resume?: boolean;
  upgrade?: boolean;
  election?: boolean;
  independent?: boolean;
}

export interface WireNewLease {
  ttl_ms: number;
  lease: Decimal;
  client: string;
}

export interface WireHold {
  lock: string;
  lease: Decimal;
  token: Decimal;
}

export interface WireExpect {
  absent?: true;
  modified?: Decimal;
  value?: string;
  value_base64?: string;
}

/** What is asked for: exactly one of the commands. */
export interface Command {
  acquire?: WireAcquire;
  release?: WireHold;
  renew?: { leases: Decimal[] };
  grant_lease?: WireNewLease;
  revoke?: { lease: Decimal; by?: string; reason?: string; now?: boolean };
  leave?: { lock: string; lease: Decimal };
  stopped?: { lock: string; lease: Decimal; lease_created: Decimal; token: Decimal };
  downgrade?: WireHold;
  update?: WireHold & { metadata?: string; metadata_base64?: string };
  force?: { lock: string; token: Decimal; reason: string; by?: string; now?: boolean };
  put?: {
    key: string;
    value?: string;
    value_base64?: string;
    lease?: Decimal;
    expect?: WireExpect;
    guard?: { lock: string; token: Decimal };
  };
  delete?: { key: string; expect?: WireExpect; guard?: { lock: string; token: Decimal } };
  get_lease?: { name: string; stale?: boolean };
  get_lock?: { name: string; stale?: boolean };
  get_key?: { name: string; stale?: boolean };
  explain?: { lock: string; lease?: Decimal };
  hand_on?: WireHold & { to: Decimal };
  progress?: WireHold & { number: Decimal };
  resize?: { lock: string; slots: number; by?: string };
  drain?: { prefix: string; reason: string; by?: string };
  undrain?: { prefix: string; by?: string };
}

/** A command, and how the cluster recognises it when it is sent again. */
export interface WireRequest extends Command {
  id?: number;
  seq?: number;
  done?: number;
  idempotency_key?: string;
  deadline_ms?: number;
  traceparent?: string;
}

/** Text or bytes, as a caller gives them. */
export type Content = string | Uint8Array;

/** Content as fields of a message: text stays text, bytes become base64. */
export function contentFields(content: Content, name: "value"): { value?: string; value_base64?: string };
export function contentFields(content: Content, name: "metadata"): { metadata?: string; metadata_base64?: string };
export function contentFields(content: Content, name: string): Record<string, string> {
  return typeof content === "string" ? { [name]: content } : { [`${name}_base64`]: toBase64(content) };
}

/** Content from the fields of a message, as bytes. */
export function contentBytes(text: string | undefined, base64: string | undefined): Uint8Array {
  return base64 === undefined ? new TextEncoder().encode(text ?? "") : fromBase64(base64);
}

function toBase64(bytes: Uint8Array): string {
  let binary = "";
  for (const byte of bytes) binary += String.fromCharCode(byte);
  return btoa(binary);
}

function fromBase64(text: string): Uint8Array {
  return Uint8Array.from(atob(text), (it) => it.charCodeAt(0));
}
