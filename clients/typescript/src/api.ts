/** Lists what the package exports. */
export { Client, type ExplainOptions, type ForceOptions, type OperatorOptions, type RevokeOptions } from "./client.js";
export type { Duration } from "./duration.js";
export { Election, Leadership, Observer, type Leader } from "./election.js";
export {
  Closed,
  FenceFailed,
  Invalid,
  Lost,
  Refused,
  StillHeld,
  StrangeAnswer,
  TenureError,
  Timeout,
  Unavailable,
  Unknown,
  type Effect,
  type Tried,
} from "./errors.js";
export { Guard, type HeldLock } from "./guard.js";
export type { HistoryOptions, Past } from "./history.js";
export { Key, type KeyValue, type PutOptions, type WriteOptions } from "./key.js";
export { Lease } from "./lease.js";
export type { Standing } from "./lease_state.js";
export type { Cause, Loss } from "./loss.js";
export type { ClientOptions, LeaseTimes, LockOptions, PoolOptions, UpgradeOptions } from "./options.js";
export { Watch, type PreviousContent, type WatchBatch, type WatchEvent, type WatchOptions } from "./watch.js";
export type {
  ChainStep,
  Content,
  DrainShown,
  Explained,
  Holder,
  HolderShown,
  LockShown,
  ProgressShown,
  RingLink,
  WaiterShown,
} from "./wire.js";
