package dev.tenure.client.internal;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import dev.tenure.client.Cause;
import dev.tenure.client.ClosedException;
import dev.tenure.client.HeldLock;
import dev.tenure.client.Lost;
import dev.tenure.client.LostException;
import dev.tenure.client.RefusedException;
import dev.tenure.client.Standing;
import dev.tenure.client.UnavailableException;
import java.util.ArrayList;
import java.util.List;
import java.util.Optional;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.atomic.AtomicInteger;

/** What guards of the same grant share: one lock, or several that were requested together. */
public final class Hold {
  private final HeldLease held;
  private final boolean own;
  private final LocalQueue.Permits permits;
  private final Signal lost = new Signal();
  private final long revision;
  private final AtomicInteger guards = new AtomicInteger(1);
  private volatile List<HeldLock> locks;

  /** It is not certain how the lock is held. */
  private volatile boolean inDoubt;

  private Hold(HeldLease held, boolean own, List<HeldLock> locks, long revision, LocalQueue.Permits permits) {
    this.held = held;
    this.own = own;
    this.locks = List.copyOf(locks);
    this.revision = revision;
    this.permits = permits;
  }

  /** Makes the hold of what was granted, if the lease can be relied on at this moment; else gives it back. On the loop. */
  static Hold of(HeldLease held, boolean own, List<HeldLock> locks, long revision, LocalQueue.Permits permits) {
    Hold hold = new Hold(held, own, locks, revision, permits);
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
    CompletableFuture<Void> done = new CompletableFuture<>();
    CompletableFuture<Void> before =
        inDoubt && !own ? giveBackWhatThereIs() : CompletableFuture.completedFuture(null);
    before.whenComplete((nothing, failed) -> {
      CompletableFuture<Void> finished = held.finish(tokens, own);
      finished = inDoubt && own ? Futures.both(finished, held.revoke()) : finished;
      finished.whenComplete((none, error) -> Futures.pass(null, failed != null ? failed : error, done));
    });
    return done.whenComplete((nothing, error) -> {
      if (permits != null) {
        permits.close();
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
      regrant(at, Json.decimal(reply.result(), "token"), reply.revision());
      downgrade(at + 1, done);
    });
  }

  /** Moves one lock to another token. On the loop. */
  void regrant(int at, long token, long revision) {
    HeldLock old = locks.get(at);
    if (old.token() == token) {
      return;
    }
    List<HeldLock> changed = new ArrayList<>(locks);
    changed.set(at, new HeldLock(old.name(), token, old.slot()));
    locks = List.copyOf(changed);
    held.regranted(old.token(), token, revision);
  }

  /** It is not certain how the lock is held: it is lost, and giving it back gives back what there is. On the loop. */
  void doubt() {
    inDoubt = true;
    held.act(state -> locks.forEach(it -> state.taken(it.token(), Lost.of(Cause.GONE))));
  }

  /** Leaves the queue of an upgrade, and releases the lock under whichever token the lease holds it. */
  private CompletableFuture<Void> giveBackWhatThereIs() {
    HeldLock lock = locks.get(0);
    ObjectNode command = Json.object();
    command.putObject("leave").put("lock", lock.name()).put("lease", held.name());
    CompletableFuture<Void> done = new CompletableFuture<>();
    held.numbered(command, "left").whenComplete((reply, error) -> {
      if (error != null && !(error instanceof RefusedException)) {
        done.completeExceptionally(error);
        return;
      }
      List<Long> tokens = new ArrayList<>();
      if (reply != null) {
        reply.result().path("held").forEach(it -> tokens.add(Json.decimal(it, "token")));
      }
      if (tokens.isEmpty()) {
        tokens.add(lock.token());
      }
      CompletableFuture<Void> all = CompletableFuture.completedFuture(null);
      for (long token : tokens) {
        // A loss says that it is not held under this token.
        CompletableFuture<Void> one = held.release(lock.name(), token);
        all = Futures.both(all, Futures.then(one, failed -> failed instanceof LostException ? null : failed));
      }
      all.whenComplete((nothing, failed) -> Futures.pass(null, failed, done));
    });
    return done;
  }

  /** Gives the hold to a lease that waits for the lock, and completes with the token of its grant. */
  public CompletableFuture<Long> handOn(String to) {
    ObjectNode command = Json.object();
    hold(command, "hand_on", locks.get(0)).put("to", to);
    return onLoop(done -> held.numbered(command, "handed_on").whenComplete((reply, error) -> {
      if (error == null) {
        handedOn();
        done.complete(Json.decimal(reply.result(), "token"));
        return;
      }
      // After a refusal the hold is as it was.
      if (!(error instanceof RefusedException || error instanceof UnavailableException)) {
        doubt();
      }
      done.completeExceptionally(error);
    }));
  }

  /** Another client has the lock. There is nothing to release any more, except a lease that exists for this lock alone. */
  private void handedOn() {
    long token = locks.get(0).token();
    ClockReading now = MachineClock.read();
    held.act(state -> {
      if (state.givenBack(token, now).isEmpty()) {
        state.stopped(token);
      }
    });
    held.unlisten(List.of(token));
    if (own) {
      core().background(held.revoke());
    }
    if (permits != null) {
      permits.close();
    }
  }

  /** Reports how far the work has come; completes with the answer. */
  public CompletableFuture<JsonNode> progress(long number) {
    ObjectNode command = Json.object();
    hold(command, "progress", locks.get(0)).put("number", Json.decimal(number));
    // The number itself makes a repetition harmless.
    return core().request(command, "progressed", Identity.HARMLESS);
  }

  private ObjectNode hold(ObjectNode command, String name, HeldLock it) {
    return command.putObject(name).put("lock", it.name()).put("lease", held.name()).put("token", Json.decimal(it.token()));
  }

  private <T> CompletableFuture<T> onLoop(java.util.function.Consumer<CompletableFuture<T>> start) {
    CompletableFuture<T> done = core().awaited();
    core().loop.run(() -> start.accept(done));
    return done;
  }
}
