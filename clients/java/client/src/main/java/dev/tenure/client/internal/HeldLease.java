package dev.tenure.client.internal;

import com.fasterxml.jackson.databind.node.ObjectNode;
import dev.tenure.client.Cause;
import dev.tenure.client.Lost;
import dev.tenure.client.LostException;
import dev.tenure.client.RefusedException;
import java.lang.System.Logger;
import java.lang.System.Logger.Level;
import java.util.ArrayDeque;
import java.util.Collection;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.TreeSet;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.locks.ReentrantLock;
import java.util.function.Consumer;
import java.util.function.Function;

/** Keeps a granted lease, and tells everything that relies on it when it is lost. */
public final class HeldLease {
  private static final Logger LOG = System.getLogger("dev.tenure.client");

  /** The number of requests of one lease that may be unanswered; the cluster allows a few more. */
  private static final int WINDOW = 200;

  final Core core;
  final long id;
  private final long created;
  private final Session grantedOn;
  private final long grantedAt = MachineClock.now();
  private final ReentrantLock lock = new ReentrantLock();
  private final LeaseState state;
  private final Map<Long, Signal> signals = new ConcurrentHashMap<>();
  private final Signal lost = new Signal();
  final LocalQueue queue = new LocalQueue();

  // On the loop only:
  private long newestSeq;
  private final TreeSet<Long> openSeqs = new TreeSet<>();
  private final ArrayDeque<Consumer<Seq>> awaitingSeq = new ArrayDeque<>();
  private boolean revoked;

  /** The number of a request under this lease. Closed when the request is answered or given up. */
  public final class Seq {
    private final long number;

    private Seq(long number) {
      this.number = number;
    }

    long number() {
      return number;
    }

    /** Returns up to which number every request is answered or given up. */
    long done() {
      return openSeqs.isEmpty() ? newestSeq : openSeqs.first() - 1;
    }

    void close() {
      if (openSeqs.remove(number) && !awaitingSeq.isEmpty()) {
        awaitingSeq.poll().accept(nextSeq());
      }
    }
  }

  HeldLease(Core core, long id, long created, LeaseState state, Session grantedOn) {
    this.core = core;
    this.id = id;
    this.created = created;
    this.state = state;
    this.grantedOn = grantedOn;
  }

  Session grantedOn() {
    return grantedOn;
  }

  long grantedAt() {
    return grantedAt;
  }

  public String name() {
    return Json.decimal(id);
  }

  /** Returns the signal that fires when the lease is lost. */
  public Signal lost() {
    return lost;
  }

  /** Acts on the lease state, then tells what was lost by it. */
  public <T> T with(Function<LeaseState, T> act) {
    T done;
    Optional<Lost> leaseLost;
    List<LeaseState.GrantLoss> losses;
    boolean over;
    lock.lock();
    try {
      done = act.apply(state);
      leaseLost = state.loss();
      losses = state.losses();
      over = leaseLost.isPresent() && state.isIdle();
    } finally {
      lock.unlock();
    }
    // Listeners run outside of the lock.
    leaseLost.ifPresent(lost::fire);
    losses.forEach(this::report);
    if (over) {
      core.forget(this);
    }
    return done;
  }

  /** Does the same for an act without a result. */
  void act(Consumer<LeaseState> act) {
    with(it -> {
      act.accept(it);
      return null;
    });
  }

  private void report(LeaseState.GrantLoss loss) {
    Signal signal = signals.get(loss.token());
    // After the work has stopped, the loss concerns no one.
    if (signal != null && signal.fire(loss.lost()) && !loss.stopped()) {
      String token = Json.decimal(loss.token());
      LOG.log(Level.WARNING, "lost lock `{0}` (token {1}, lease {2}): {3}", loss.lock(), token, name(), loss.lost());
      if (Plant.RELEASE_WHILE_WORKING.isPlanted()) {
        core.loop.later(() -> core.background(farewell(List.of())));
      }
    }
  }

  /** Subscribes to the loss of a grant that is not yet recorded in the lease state. */
  void listen(long token, Signal signal) {
    signals.put(token, signal);
  }

  void unlisten(Collection<Long> tokens) {
    for (Long token : tokens) {
      Signal signal = signals.remove(token);
      if (signal != null) {
        signal.close();
      }
    }
  }

  /** Moves a held lock to another token, together with the subscription to its loss. */
  void regranted(long old, long token, long at) {
    Signal signal = signals.remove(old);
    if (signal != null) {
      signals.put(token, signal);
    }
    act(it -> it.regranted(old, token, at));
  }

  /** Hands over the next request number, once the window has room. On the loop. */
  void seq(Consumer<Seq> then) {
    if (openSeqs.size() < WINDOW) {
      then.accept(nextSeq());
    } else {
      awaitingSeq.add(then);
    }
  }

  private Seq nextSeq() {
    newestSeq++;
    openSeqs.add(newestSeq);
    return new Seq(newestSeq);
  }

  /** Sends a command under the lease, exactly once. On the loop. */
  CompletableFuture<Call.Reply> numbered(ObjectNode command, String result) {
    CompletableFuture<Call.Reply> done = new CompletableFuture<>();
    seq(seq -> Call.start(core, command, result, new Identity.Numbered(seq)).done().whenComplete((reply, error) -> {
      seq.close();
      Futures.pass(reply, error, done);
    }));
    return done;
  }

  /**
   * Tells the cluster that the work under these grants has stopped, in the way that fits. The caller says so by calling
   * this. On the loop.
   */
  CompletableFuture<Void> finish(List<Long> tokens, boolean own) {
    ClockReading now = MachineClock.read();
    boolean held = with(it -> tokens.stream().allMatch(token -> it.checkGrant(token, now).isEmpty()));
    CompletableFuture<Void> done;
    if (held && own) {
      // The lease is the guard's own: one revoke ends everything.
      act(it -> tokens.forEach(it::stopped));
      done = revoke();
    } else if (held && tokens.size() == 1) {
      Optional<String> name = with(it -> it.givenBack(tokens.get(0), now));
      done = name.isPresent() ? release(name.get(), tokens.get(0)) : farewell(tokens);
    } else {
      done = farewell(tokens);
    }
    return done.whenComplete((nothing, error) -> unlisten(tokens));
  }

  /** Tells the cluster what it may know about grants whose work has stopped. On the loop. */
  private CompletableFuture<Void> farewell(List<Long> tokens) {
    ClockReading now = MachineClock.read();
    Optional<Lost> over = with(it -> it.check(now));
    List<LeaseState.Farewell> farewells = with(it -> {
      tokens.forEach(it::stopped);
      return it.farewells();
    });
    CompletableFuture<Void> all = CompletableFuture.completedFuture(null);
    for (LeaseState.Farewell farewell : farewells) {
      if (farewell.message() == LeaseState.EndMessage.CONFIRM) {
        all = Futures.both(all, confirm(farewell.lock(), farewell.token()));
      } else if (over.isEmpty() || Plant.RELEASE_WHILE_WORKING.isPlanted()) {
        // A lost lease is revoked as a whole.
        all = Futures.both(all, release(farewell.lock(), farewell.token()));
      }
    }
    // The last work under the lost lease has stopped: other clients need not wait until it runs out.
    return over.isEmpty() ? all : Futures.both(all, revoke());
  }

  /** Releases a lock. The token identifies the grant: doing it twice is doing it once. */
  CompletableFuture<Void> release(String name, long token) {
    ObjectNode command = Json.object();
    command.putObject("release").put("lock", name).put("lease", name()).put("token", Json.decimal(token));
    Call call = Call.start(core, command, "released", Identity.HARMLESS);
    return Futures.then(call.done(), error -> {
      boolean gone = error instanceof RefusedException it
          && List.of("NOT_HOLDER", "LEASE_NOT_FOUND").contains(it.reason());
      if (!gone) {
        return error;
      }
      // An earlier, unanswered attempt may have released it; else it was lost, and the notice has not arrived.
      return call.doubted() ? null : new LostException(Lost.of(Cause.GONE));
    });
  }

  private CompletableFuture<Void> confirm(String name, long token) {
    ObjectNode command = Json.object();
    command
        .putObject("stopped")
        .put("lock", name)
        .put("lease", name())
        .put("lease_created", Json.decimal(created))
        .put("token", Json.decimal(token));
    // Not cooling: the lock has gone to the next holder, so there is nothing to confirm.
    return Futures.then(
        Call.start(core, command, "stopped", Identity.HARMLESS).done(),
        error -> error instanceof RefusedException it && it.reason().equals("NOT_COOLING") ? null : error);
  }

  /** Revokes the lease, if no work runs under it. From then on nothing is granted under it. On the loop. */
  CompletableFuture<Void> revoke() {
    boolean ended = with(LeaseState::endIfIdle);
    if (!ended || revoked) {
      return CompletableFuture.completedFuture(null);
    }
    revoked = true;
    Call call = core.revokeCall(id);
    return Futures.then(call.done(), error -> {
      boolean gone = error instanceof RefusedException it && it.reason().equals("LEASE_NOT_FOUND");
      if (!gone) {
        return error;
      }
      return call.doubted() ? null : new LostException(Lost.of(Cause.GONE));
    });
  }
}
