// Plants a bug in the library, so that vectors and scenarios can prove that they find it. Only tests and the driver load
// this file: the library itself has no branch for it.
import { Core } from "./dist/esm/core.js";
import { HeldLease } from "./dist/esm/held_lease.js";
import { LeaseState, PendingGrant } from "./dist/esm/lease_state.js";

const PLANTS = {
  // A renewal counts from when its answer came, and not from before it was sent.
  renewal_from_answer() {
    const granted = PendingGrant.prototype.granted;
    PendingGrant.prototype.granted = function (now) {
      this.first = now.boot;
      return granted.call(this, now);
    };
    const renewed = LeaseState.prototype.renewed;
    LeaseState.prototype.renewed = function (number, ttlMs, changed, now) {
      for (const it of this.tries) if (it.number === number) it.sent = now.boot;
      return renewed.call(this, number, ttlMs, changed, now);
    };
  },
  // An answer revives a lost lease, however late it comes.
  loss_not_final() {
    const lose = LeaseState.prototype.lose;
    LeaseState.prototype.lose = function (loss) {
      const tries = this.tries;
      lose.call(this, loss);
      this.tries = tries;
    };
    const renewed = LeaseState.prototype.renewed;
    LeaseState.prototype.renewed = function (number, ttlMs, changed, now) {
      if (this.lost !== undefined && ttlMs > 0 && this.tries.some((it) => it.number === number)) {
        this.lost = undefined;
        this.since = now.boot;
      }
      return renewed.call(this, number, ttlMs, changed, now);
    };
    const isSoon = LeaseState.prototype.isSoon;
    LeaseState.prototype.isSoon = function (now) {
      return this.lost !== undefined ? this.lost.cause !== "released" : isSoon.call(this, now);
    };
    const poll = LeaseState.prototype.poll;
    LeaseState.prototype.poll = function (now) {
      return poll.call(this, now) || (this.lost !== undefined && this.lost.cause !== "released");
    };
  },
  // A request that is sent again has nothing by which the cluster could recognise it.
  retry_without_id() {
    const request = Core.prototype.request;
    Core.prototype.request = function (command, _identity) {
      return request.call(this, command, { by: "nothing" });
    };
  },
  // The lock goes back as soon as it is lost or taken away, while the work still runs.
  release_while_working() {
    const farewells = LeaseState.prototype.farewells;
    LeaseState.prototype.farewells = function () {
      for (const grant of this.grants.values()) if ((grant.lost ?? this.lost) !== undefined) grant.stopped = true;
      return farewells.call(this);
    };
    const report = HeldLease.prototype.report;
    HeldLease.prototype.report = function () {
      const lost = this.state.kept().filter((it) => it.loss !== undefined && !it.stopped);
      report.call(this);
      if (lost.length > 0) this.core.cleanUp(() => this.farewell(lost.map((it) => it.token)));
    };
  },
  // The check asks what a timer has noticed, and not the clock.
  check_by_timer() {
    LeaseState.prototype.check = function (_now) {
      return this.lost;
    };
  },
};
PLANTS.count_from_answer = PLANTS.renewal_from_answer;

export const ALL = Object.keys(PLANTS);

/** Plants a bug. */
export function plant(name) {
  const bug = PLANTS[name];
  if (bug === undefined) throw new Error(`no such bug: ${name} (${ALL.join(", ")})`);
  bug();
}
