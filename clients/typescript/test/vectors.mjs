// Plays one trace of clients/vectors against the lease state, and throws at the first output that differs.
import assert from "node:assert/strict";
import { LeaseTiming, LeaseTimingError } from "../dist/esm/lease_timing.js";
import { PendingGrant } from "../dist/esm/lease_state.js";

const MEASURE = {
  cluster_unreachable: "silent",
  credentials_refused: "silent",
  local_stall: "late",
  suspended: "suspended",
};

export function replay(trace) {
  let timing;
  try {
    timing = new LeaseTiming(trace.ttl, trace.window, trace.grace);
  } catch (error) {
    if (!(error instanceof LeaseTimingError)) throw error;
    const found = { refused: error.kind, least: error.leastUs, most: error.mostUs };
    assert.deepEqual(found, { refused: trace.refused, least: trace.least, most: trace.most }, trace.name);
    return;
  }
  const times = {
    window: timing.windowUs,
    renew_after: timing.renewAfterUs,
    retry: timing.retryUs,
    overdue_after: timing.overdueAfterUs,
    surely_lives: timing.surelyLivesUs,
  };
  assert.deepEqual(times, trace.times, trace.name);
  const player = { pending: new PendingGrant(timing), timing, lease: undefined };
  trace.steps.forEach((step, at) => {
    const now = { boot: step.at, awake: step.at - (step.slept ?? 0) };
    const out = { ...play(player, step, now), ...shown(player.lease, now) };
    assert.deepEqual(out, step.out, `${trace.name}, step ${at}: ${JSON.stringify(step)}`);
  });
}

function play(player, step, now) {
  const { lease } = player;
  const token = BigInt(step.token ?? 0);
  const checked = (loss, word) => ({ [word]: loss === undefined, ...(loss && { because: loss.cause }) });
  switch (step.do) {
    case "send_grant":
      player.pending.sent(now);
      return {};
    case "granted": {
      const granted = player.pending.granted(now);
      if (granted === undefined) return { too_late: player.pending.tookUs(now) };
      player.lease = granted;
      return {};
    }
    case "poll":
      return { renew: lease.poll(now) };
    case "renewing":
      return { number: lease.renewing(now) };
    case "renewed":
      return {
        read_holdings: lease.renewed(step.number, step.ttl / 1000, BigInt(step.changed), now) === "read_holdings",
      };
    case "not_renewed":
      lease.notRenewed(step.number);
      return {};
    case "holdings":
      lease.holdings(BigInt(step.revision), BigInt(step.changed), step.holds.map(BigInt), now);
      return {};
    case "ended":
      lease.ended({ cause: step.cause }, now);
      return {};
    case "lock_granted":
      return checked(lease.granted(step.lock, token, BigInt(step.revision), now), "held");
    case "taken":
      lease.taken(token, { cause: step.cause });
      return {};
    case "check":
      return { ok: lease.check(now) === undefined };
    case "check_lock":
      return checked(lease.checkGrant(token, now), "ok");
    case "stopped":
      lease.stopped(token);
      return {};
    case "farewells": {
      const say = { release: "release", confirm: "stopped" };
      return {
        farewells: lease.farewells().map((it) => ({ say: say[it.end], lock: it.lock, token: String(it.token) })),
      };
    }
    case "give_back":
      return { release: lease.givenBack(token, now) ?? null };
    case "end_if_idle":
      return { ended: lease.endIfIdle() };
    case "credentials_refused":
      lease.credentialsRefused();
      return {};
    default:
      throw new Error(`a step that this player does not know: ${step.do}`);
  }
}

function shown(lease, now) {
  if (lease === undefined) return {};
  const out = { state: lease.standing(now) };
  const loss = lease.loss;
  if (loss !== undefined) {
    out.cause = loss.cause;
    if (MEASURE[loss.cause]) out[MEASURE[loss.cause]] = loss.forUs;
  } else {
    out.due = lease.due;
    out.lost_at = lease.lostAt;
  }
  const locks = lease.kept();
  if (locks.length > 0) {
    out.locks = Object.fromEntries(locks.map((it) => [String(it.token), it.loss?.cause ?? "held"]));
  }
  return out;
}
