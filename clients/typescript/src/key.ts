/** Reads and writes keys of the small key-value store beside the locks, optionally guarded by a lock. */
import { HARMLESS, type Core } from "./core.js";
import { StrangeAnswer } from "./errors.js";
import type { Guard } from "./guard.js";
import type { Lease } from "./lease.js";
import { checkedName } from "./names.js";
import { randomKey } from "./platform/platform.js";
import { contentBytes, contentFields, type Content, type WireExpect } from "./wire.js";

/** A key and its value. */
export interface KeyValue {
  readonly value: Uint8Array;
  /** The value as text. */
  readonly text: string;
  /** The revision that created the key. */
  readonly created: bigint;
  /** The revision that last wrote the key. */
  readonly modified: bigint;
  /** How often the key was written since it was created. */
  readonly version: number;
}

/** The conditions of a write. At most one of `ifAbsent`, `ifModified` and `ifValue`. */
export interface WriteOptions {
  /** Only if the key does not exist. */
  ifAbsent?: boolean;
  /** Only if the key was last written at this revision. */
  ifModified?: bigint;
  /** Only if the key has this value. */
  ifValue?: Content;
  /** Only while the guard's lock is held under its token: the cluster itself is the fence. */
  guard?: Guard;
  /** The id of a write whose outcome was unknown (`Unknown.requestId`): repeats that one, which takes effect once. */
  requestId?: string;
}

export interface PutOptions extends WriteOptions {
  /** Deletes the key when this lease ends. */
  lease?: Lease;
}

/** A key of the store. */
export class Key {
  /** @internal */
  constructor(
    private readonly core: Core,
    readonly name: string,
  ) {
    checkedName(name);
  }

  /** Reads the key. Resolves with `null` if it does not exist. */
  async get(): Promise<KeyValue | null> {
    const { answer } = await this.core.call({ get_key: { name: this.name } }, HARMLESS);
    if (answer.key === undefined) throw new StrangeAnswer();
    const found = answer.key.key;
    if (found === undefined) return null;
    const value = contentBytes(found.value, found.value_base64);
    return {
      value,
      get text() {
        return new TextDecoder().decode(value);
      },
      created: BigInt(found.created),
      modified: BigInt(found.modified),
      version: found.version,
    };
  }

  /** Writes the key exactly once. */
  async put(value: Content, options: PutOptions = {}): Promise<{ revision: bigint; version: number }> {
    const lease = options.lease === undefined ? {} : { lease: options.lease.id };
    const put = { key: this.name, ...contentFields(value, "value"), ...lease, ...conditions(options) };
    const { answer, revision } = await this.core.call({ put }, identity(options));
    if (answer.put === undefined) throw new StrangeAnswer();
    return { revision, version: answer.put.version };
  }

  /** Deletes the key exactly once. Resolves with whether it existed. */
  async delete(options: WriteOptions = {}): Promise<boolean> {
    const command = { delete: { key: this.name, ...conditions(options) } };
    const { answer } = await this.core.call(command, identity(options));
    if (answer.deleted === undefined) throw new StrangeAnswer();
    return answer.deleted.existed;
  }
}

function identity(options: WriteOptions) {
  return { by: "key", key: options.requestId ?? randomKey() } as const;
}

function conditions(options: WriteOptions) {
  const expect: WireExpect = {};
  if (options.ifAbsent) expect.absent = true;
  if (options.ifModified !== undefined) expect.modified = String(options.ifModified);
  if (options.ifValue !== undefined) Object.assign(expect, contentFields(options.ifValue, "value"));
  const { guard } = options;
  return {
    ...(Object.keys(expect).length > 0 ? { expect } : {}),
    ...(guard === undefined ? {} : { guard: { lock: guard.name, token: String(guard.token) } }),
  };
}
