package dev.tenure.client.internal;

import com.fasterxml.jackson.databind.node.ObjectNode;
import dev.tenure.client.ClosedException;
import dev.tenure.client.HeldLock;
import dev.tenure.client.Lost;
import dev.tenure.client.LostException;
import dev.tenure.client.Standing;
import java.util.ArrayList;
import java.util.List;
import java.util.Optional;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.atomic.AtomicInteger;

/** What guards of the same grant share: one lock, or several that were requested together. */
public final class Hold {
  private final HeldLease held;
  private final boolean own;
  private final LocalQueue.Turn turn;
  private final Signal lost = new Signal();
  private final long revision;
  private final AtomicInteger guards = new AtomicInteger(1);
  private volatile List<HeldLock> locks;

  private Hold(HeldLease held, boolean own, List<HeldLock> locks, long revision, LocalQueue.Turn turn) {
    this.held = held;
    this.own = own;
    this.locks = List.copyOf(locks);
    this.revision = revision;
    this.turn = turn;
  }

  /** Makes the hold of what was granted, if the lease can be relied on at this moment; else gives it back. On the loop. */
  static Hold of(HeldLease held, boolean own, List<HeldLock> locks, long revision, LocalQueue.Turn turn) {
    Hold hold = new Hold(held, own, locks, revision, turn);
    // Subscribe before the grant is recorded, so that no loss is missed.
    locks.forEach(it -> held.listen(it.token(), hold.lost));
    ClockReading now = MachineClock.read();
    Optional<Lost> loss = held.with(state -> {
      Optional<Lost> first = Optional.empty();
      for (HeldLock it : locks) {
        Optional<Lost> each = state.granted(it.name(), it.token(), revision, now);
        first = first.isPresent() ? first : each;
      }
      return first;
    });
    if (loss.isPresent() || held.core.isClosing()) {
      // No work has begun.
      held.core.background(hold.finish());
      throw loss.isEmpty() || held.core.isClosing() ? new ClosedException() : new LostException(loss.get());
    }
    return hold;
  }

  public HeldLease lease() {
    return held;
  }

  public List<HeldLock> locks() {
    return locks;
  }

  public long revision() {
    return revision;
  }

  public Signal lost() {
    return lost;
  }

  public Core core() {
    return held.core;
  }

  /** Returns why the locks cannot be relied on at this moment. Only compares the clock, sends nothing. */
  public Optional<Lost> check() {
    ClockReading now = MachineClock.read();
    for (HeldLock it : locks) {
      Optional<Lost> loss = held.with(state -> state.checkGrant(it.token(), now));
      if (loss.isPresent()) {
        return lost.fired().or(() -> loss);
      }
    }
    return Optional.empty();
  }

  public Standing standing() {
    ClockReading now = MachineClock.read();
    return check().isPresent() ? Standing.LOST : held.with(state -> state.standing(now));
  }

  /** Counts another guard of the same grant. */
  public void enter() {
    guards.incrementAndGet();
  }

  /** A guard ends: its work has stopped. The last one gives the locks back; the result is the cluster's word. */
  public CompletableFuture<Void> leave() {
    if (guards.decrementAndGet() > 0) {
      return CompletableFuture.completedFuture(null);
    }
    CompletableFuture<Void> done = core().awaited();
    core().background(done);
    core().loop.run(() -> finish().whenComplete((nothing, error) -> Futures.pass(null, error, done)));
    return done;
  }

  public boolean isShared() {
    return guards.get() > 1;
  }

  private CompletableFuture<Void> finish() {
    List<Long> tokens = locks.stream().map(HeldLock::token).toList();
    return held.finish(tokens, own).whenComplete((nothing, error) -> {
      if (turn != null) {
        turn.close();
      }
    });
  }

  /** Replaces the metadata of the first lock. */
  public CompletableFuture<Void> update(byte[] metadata) {
    ObjectNode command = Json.object();
    Json.putBytes(hold(command, "update", locks.get(0)), "metadata", metadata);
    return onLoop(done -> held.numbered(command, "updated").whenComplete((reply, error) -> Futures.pass(null, error, done)));
  }

  /** Turns exclusive holds into shared ones, one after the other. The tokens change. */
  public CompletableFuture<Void> downgrade() {
    return onLoop(done -> downgrade(0, done));
  }

  private void downgrade(int at, CompletableFuture<Void> done) {
    if (at == locks.size()) {
      done.complete(null);
      return;
    }
    HeldLock old = locks.get(at);
    ObjectNode command = Json.object();
    hold(command, "downgrade", old);
    held.numbered(command, "downgraded").whenComplete((reply, error) -> {
      if (error != null) {
        done.completeExceptionally(error);
        return;
      }
      long token = Json.decimal(reply.result(), "token");
      List<HeldLock> changed = new ArrayList<>(locks);
      changed.set(at, new HeldLock(old.name(), token, old.slot()));
      locks = List.copyOf(changed);
      held.regranted(old.token(), token, reply.revision());
      downgrade(at + 1, done);
    });
  }

  private ObjectNode hold(ObjectNode command, String name, HeldLock it) {
    return command.putObject(name).put("lock", it.name()).put("lease", held.name()).put("token", Json.decimal(it.token()));
  }

  private CompletableFuture<Void> onLoop(java.util.function.Consumer<CompletableFuture<Void>> start) {
    CompletableFuture<Void> done = core().awaited();
    core().loop.run(() -> start.accept(done));
    return done;
  }
}
