/** Reads what happened to locks, also from the archives of members. */
import type { Core } from "./core.js";
import { Invalid, StrangeAnswer } from "./errors.js";
import { inPath } from "./http.js";
import { checkedName } from "./names.js";
import { watchEvent, type WatchBatch } from "./watch.js";

/** The most revisions in one answer of a member. */
const PAGE = 1_000;

/** Which part of the past is searched. */
export interface HistoryOptions {
  /** Searches all locks whose names start so, instead of one. */
  prefix?: boolean;
  /** Only events since this time, by their labels: a date, or milliseconds since 1970. */
  since?: Date | number;
  /** Only events until this time, by their labels. */
  until?: Date | number;
  /** Only events of clients whose names start so. */
  client?: string;
  /** Only ends of holds that the holder did not ask for. */
  lost?: boolean;
  /** The most revisions; the newest ones are kept. 1,000 unless set. */
  limit?: number;
}

/** What is known of the past. */
export interface Past {
  /** The newest revisions that were asked for, the oldest first. */
  readonly batches: readonly WatchBatch[];
  /** The revision from which on the member has the events of these locks; absent if it has no archive. */
  readonly archiveBegins?: bigint;
  /** The time of the first event from there on, by the wall clock of that moment's leader. */
  readonly archiveBeginsAt?: Date;
  /** What the member could not record: the first revision, and the one after the last. Another member may have them. */
  readonly missing: readonly { readonly from: bigint; readonly next: bigint }[];
}

interface HistoryPage {
  readonly changes: readonly { readonly revision: string; readonly events: readonly Record<string, unknown>[] }[];
  readonly before?: string;
  readonly archive?: {
    readonly begins?: string;
    readonly begins_at?: string;
    readonly holes: readonly { readonly from: string; readonly next: string }[];
  };
}

/** Searches the past, page by page. */
export async function readHistory(core: Core, name: string, options: HistoryOptions): Promise<Past> {
  const { limit = PAGE } = options;
  if (!(Number.isSafeInteger(limit) && limit > 0)) throw new Invalid("INVALID_FIELD", "limit is a number of at least 1");
  const query = new URLSearchParams();
  if (options.prefix) {
    if (name !== "") query.set("prefix", checkedName(name));
  } else {
    query.set("view", "history");
    query.set("archive", "true");
  }
  const path = options.prefix ? "/v1/history" : `/v1/locks/${inPath(checkedName(name))}`;
  if (options.since !== undefined) query.set("since", timeOf(options.since, "since"));
  if (options.until !== undefined) query.set("until", timeOf(options.until, "until"));
  if (options.client !== undefined) query.set("client", options.client);
  if (options.lost) query.set("lost", "true");

  const batches: WatchBatch[] = [];
  const missing = new Map<string, { from: bigint; next: bigint }>();
  let archive: HistoryPage["archive"];
  for (;;) {
    const left = limit - batches.length;
    query.set("limit", String(Math.min(left, PAGE)));
    const page = (await core.http.query(`${path}?${query}`)) as HistoryPage;
    // A page has the newest revision first.
    for (const { revision, events } of page.changes.slice(0, left)) {
      batches.push({ revision: BigInt(revision), events: events.map(watchEvent) });
    }
    archive = page.archive ?? archive;
    for (const { from, next } of page.archive?.holes ?? []) {
      missing.set(`${from} ${next}`, { from: BigInt(from), next: BigInt(next) });
    }
    if (page.before === undefined || batches.length === limit) break;
    const last = query.get("before");
    if (last !== null && BigInt(page.before) >= BigInt(last)) throw new StrangeAnswer();
    query.set("before", page.before);
  }
  return {
    batches: batches.reverse(),
    ...(archive?.begins === undefined ? {} : { archiveBegins: BigInt(archive.begins) }),
    ...(archive?.begins_at === undefined ? {} : { archiveBeginsAt: new Date(archive.begins_at) }),
    missing: [...missing.values()],
  };
}

function timeOf(time: Date | number, field: string): string {
  const ms = Math.trunc(Number(time));
  if (!(ms >= 0)) throw new Invalid("INVALID_FIELD", `${field} is a time since 1970`);
  return String(ms);
}
