package dev.tenure.client.internal;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import dev.tenure.client.Effect;
import dev.tenure.client.HeldLock;
import dev.tenure.client.LostException;
import dev.tenure.client.RefusedException;
import dev.tenure.client.TenureException;
import java.util.List;
import java.util.concurrent.CompletableFuture;

/** Acquires under an existing lease, after other requests of this process for the same lock. Runs on the loop. */
final class LeaseAcquisition extends Acquisition implements StandingRequest.Outcome {
  private final HeldLease held;
  private LocalQueue.Permits permits;
  private StandingRequest standing;
  private Loop.Timer limit = () -> {};
  private Runnable unlisten = () -> {};

  LeaseAcquisition(HeldLease held, AskOptions ask) {
    super(held.core, ask);
    this.held = held;
  }

  @Override
  void begin() {
    if (ask.isTry() && held.queue.isTaken(ask.locks)) {
      fail(new RefusedException("HELD", "another request of this process has the lock under this lease", null));
      return;
    }
    unlisten = held.lost().onFire(lost -> core.loop.later(() -> {
      if (standing == null) {
        stop(new LostException(lost));
      }
    }));
    if (until != Long.MAX_VALUE) {
      limit = core.loop.after(until - MachineClock.now(), () -> {
        if (standing == null) {
          String message = "timed out waiting for lock `" + String.join(", ", ask.locks) + "` inside this process";
          stop(outOfTime(new RefusedException("WAIT_TIMEOUT", message, null), Effect.NONE));
        }
      });
    }
    permits = held.queue.enter(ask.locks, this::ask);
  }

  private void ask() {
    if (isDone()) {
      return;
    }
    limit.cancel();
    unlisten.run();
    standing = new StandingRequest(this, held, true, this);
    standing.start(null, 0);
  }

  @Override
  public void granted(List<HeldLock> locks, long revision) {
    permits.keep(locks.stream().map(HeldLock::name).toList());
    try {
      succeed(Hold.of(held, false, locks, revision, permits));
    } catch (TenureException error) {
      fail(error);
    }
  }

  @Override
  public void refused(TenureException why, boolean mayStand) {
    fail(why);
    end(mayStand);
  }

  @Override
  void giveUp() {
    limit.cancel();
    unlisten.run();
    boolean asked = standing != null;
    if (asked) {
      standing.close();
    }
    end(asked);
  }

  private void end(boolean mayStand) {
    if (!mayStand) {
      close();
      return;
    }
    List<String> locks = ask.choice == AskOptions.Choice.ANY ? ask.locks : ask.locks.subList(0, 1);
    core.background(leave(locks).whenComplete((nothing, error) -> close()));
  }

  private void close() {
    if (permits != null) {
      permits.close();
    }
  }

  /**
   * Leaves the queues, and releases what was granted meanwhile. If that fails, the place ends with its lease. If any of
   * the locks was enough, each may be the one that was granted; otherwise the first one stands for all of them.
   */
  private CompletableFuture<Void> leave(List<String> locks) {
    ObjectNode command = Json.object();
    command.putObject("leave").put("lock", locks.get(0)).put("lease", held.name());
    CompletableFuture<Void> done = new CompletableFuture<>();
    held.numbered(command, "left").whenComplete((reply, error) -> {
      if (error instanceof RefusedException && locks.size() > 1) {
        // Neither the place nor the grant was there: perhaps at the next lock.
        leave(locks.subList(1, locks.size())).whenComplete((nothing, failed) -> Futures.pass(null, failed, done));
        return;
      }
      if (error != null) {
        Futures.pass(null, error instanceof RefusedException ? null : error, done);
        return;
      }
      CompletableFuture<Void> all = CompletableFuture.completedFuture(null);
      for (JsonNode it : reply.result().path("held")) {
        all = Futures.both(all, held.release(Json.string(it, "lock"), Json.decimal(it, "token")));
      }
      all.whenComplete((nothing, failed) -> Futures.pass(null, failed, done));
    });
    return done;
  }
}
