/**
 * Renews all leases of a client with few messages, and notices when one is lost.
 *
 * When one lease is due, the client renews every lease that will be due soon with the same command. The first attempt
 * goes to the leader. While it is unanswered, further attempts go to the other member and to the leader in turn, each
 * independently.
 */
import { HARMLESS, RENEW_MAX, within, type Core } from "./core.js";
import { Refused } from "./errors.js";
import type { HeldLease } from "./held_lease.js";
import type { Session } from "./session.js";
import { nowMs } from "./waiting.js";

/** The maximum time between two checks. */
const IDLE_MS = 60_000;

/** A lease in a renewal, and the number of the attempt. */
interface RenewalPart {
  readonly lease: HeldLease;
  readonly number: number;
}

/** The renewals of one client. */
export class Renewals {
  private timer: ReturnType<typeof setTimeout> | undefined;
  private nextUs = Infinity;
  private turn = 0;
  private stopped = false;

  constructor(private readonly core: Core) {}

  /** A lease was granted, or its times changed: looks at it in time. */
  consider(dueUs: number): void {
    if (dueUs < this.nextUs) this.arm(dueUs);
  }

  stop(): void {
    this.stopped = true;
    clearTimeout(this.timer);
  }

  private arm(dueUs: number): void {
    if (this.stopped) return;
    clearTimeout(this.timer);
    this.nextUs = dueUs;
    const left = Math.ceil((dueUs - this.core.clock.nowUs()) / 1_000);
    this.timer = setTimeout(() => this.beat(), Math.min(Math.max(left, 1), IDLE_MS));
  }

  /** Sends the renewals that are due, and sets the timer for the next ones. */
  private beat(): void {
    this.nextUs = Infinity;
    const leases = [...this.core.leases.values()];
    let due = false;
    for (const lease of leases) {
      const now = this.core.clock.read();
      due = lease.with((state) => state.poll(now), now) || due;
    }
    if (due) this.send(leases);
    let next = Infinity;
    for (const lease of leases) {
      const state = lease.peek();
      if (state.loss === undefined) next = Math.min(next, state.due);
    }
    if (next !== Infinity) this.arm(next);
  }

  private send(leases: readonly HeldLease[]): void {
    const { first, second } = this.core.connections.current.value;
    const again = leases.some((lease) => lease.peek().isRetrying);
    this.turn = again ? this.turn + 1 : 0;
    const both = [first, second].filter((it): it is Session => it !== undefined && !it.isOver);
    const session = both[this.turn % Math.max(1, both.length)];
    const parts: RenewalPart[] = [];
    for (const lease of leases) {
      // Read the clock before anything is sent: the renewed lease counts from here.
      const now = this.core.clock.read();
      const state = lease.peek();
      if (state.isSoon(now)) parts.push({ lease, number: state.renewing(now) });
    }
    for (let at = 0; at < parts.length; at += RENEW_MAX) {
      const some = parts.slice(at, at + RENEW_MAX);
      if (session === undefined) failed(some);
      else void this.one(session, some);
    }
  }

  /** Sends one renewal to one member. */
  private async one(session: Session, parts: readonly RenewalPart[]): Promise<void> {
    // Later attempts run independently. This one can still prove something until its window is over.
    const windowMs = Math.min(...parts.map(({ lease }) => lease.peek().timing.windowUs)) / 1_000;
    const command = { renew: { leases: parts.map(({ lease }) => lease.id) } };
    const deadline = Math.max(1, Math.floor(windowMs));
    const asked = session.ask({ ...this.core.ownRequest(command, HARMLESS), deadline_ms: deadline });
    const response = asked && (await within(asked.next(), nowMs() + windowMs));
    asked?.end();
    const renewed = response?.kind === "answer" ? response.answer.renewed : undefined;
    if (renewed === undefined) return failed(parts);
    parts.forEach(({ lease, number }, at) => {
      const now = this.core.clock.read();
      const of = renewed[at];
      const changed = BigInt(of?.changed ?? 0);
      const then = lease.with((state) => state.renewed(number, of?.ttl_ms ?? 0, changed, now), now);
      if (then === "read_holdings") this.core.cleanUp(() => this.readHoldings(lease));
      this.consider(lease.peek().due);
    });
  }

  /** Reads what a lease holds, because it lost something that the client may not have been told of. */
  private async readHoldings(lease: HeldLease): Promise<void> {
    const windowMs = lease.peek().timing.windowUs / 1_000;
    try {
      const { answer, revision } = await this.core.ownCall({ get_lease: { name: lease.id } }, HARMLESS, windowMs);
      const view = answer.lease?.lease;
      const now = this.core.clock.read();
      if (view === undefined) return lease.with((state) => state.ended({ cause: "gone" }, now), now);
      const holds = view.holds.map((it) => BigInt(it.token));
      lease.with((state) => state.holdings(revision, BigInt(view.changed), holds, now), now);
    } catch (error) {
      const now = this.core.clock.read();
      if (error instanceof Refused && error.reason === "LEASE_NOT_FOUND") {
        lease.with((state) => state.ended({ cause: "gone" }, now), now);
      }
      // After any other failure the next acknowledgement triggers another read.
    }
  }
}

function failed(parts: readonly RenewalPart[]): void {
  for (const { lease, number } of parts) lease.with((state) => state.notRenewed(number));
}
