package dev.tenure.client;

import dev.tenure.client.internal.Acquisition;
import dev.tenure.client.internal.AskOptions;
import dev.tenure.client.internal.Core;
import dev.tenure.client.internal.Futures;
import dev.tenure.client.internal.HeldLease;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.List;
import java.util.Optional;
import java.util.concurrent.CompletableFuture;
import java.util.function.LongConsumer;
import java.util.function.Supplier;

/**
 * A request for a lock, or for several at once. Nothing is sent until {@link #acquire} or one of its siblings is called.
 *
 * <pre>{@code
 * try (Guard guard = client.request("report").ttl(Duration.ofSeconds(30)).waitAtMost(Duration.ofMinutes(1)).acquire()) {
 *   build(guard.token());
 * }
 * }</pre>
 */
public final class LockRequest {
  private final Core core;
  private final HeldLease held;
  private final AskOptions ask;
  private Fence fence;

  LockRequest(Core core, HeldLease held, List<String> locks) {
    this(core, held, AskOptions.Choice.ALL, locks);
  }

  LockRequest(Core core, HeldLease held, AskOptions.Choice choice, List<String> locks) {
    this.core = core;
    this.held = held;
    this.ask = new AskOptions(choice, locks);
  }

  /**
   * Acquires in shared mode: together with other shared holders, never together with an exclusive one. Not for a {@link
   * Client#pool}: the request is then refused with {@code INVALID_FIELD}.
   *
   * @return this request
   */
  public LockRequest shared() {
    ask.mode = AskOptions.Mode.SHARED;
    return this;
  }

  /**
   * Acquires one of several numbered slots of a semaphore. Not for a {@link Client#pool}, whose semaphores have sizes
   * already: the request is then refused with {@code INVALID_FIELD}.
   *
   * @param of how many slots the lock has
   * @return this request
   */
  public LockRequest slots(int of) {
    ask.mode = AskOptions.Mode.SLOT;
    ask.slots = of;
    return this;
  }

  /**
   * Acquires several of the {@link #slots} of the semaphore, all at once or none. Each slot is one of the guard's {@link
   * Guard#locks}, with a token of its own. No request passes one that waits for more slots than are free. More than one
   * needs feature level 11.
   *
   * @param slots how many to hold
   * @return this request
   */
  public LockRequest take(int slots) {
    ask.take = slots;
    return this;
  }

  /**
   * Makes the request more urgent: it stands in the queue as if it had asked 30 seconds earlier for each step. So it
   * passes only requests that asked within that time before it, and no request waits for ever. A request that does not
   * wait passes no other. Where identity is enabled, the caller needs a role that permits the priority for the lock, or
   * the verb {@code force}.
   *
   * @param priority from 0, the default, to 9
   * @return this request
   */
  public LockRequest priority(int priority) {
    ask.priority = priority;
    return this;
  }

  /**
   * Replaces the older requests of this group that wait for the same lock, if this one has to wait: for work of which
   * only the newest matters, such as deploys. The older ones are refused with {@code SUPERSEDED}. A holder is never
   * replaced. Groups of different principals are different.
   *
   * @param group the name of the group
   * @return this request
   */
  public LockRequest supersede(String group) {
    ask.supersede = group;
    return this;
  }

  /**
   * Withholds the lock from all clients until this time has passed since the grant, even if it is released earlier: for
   * work that must not run twice within a period. The period counts starts, whether or not the work succeeds. A job that
   * a timer starts once per hour takes somewhat less than an hour.
   *
   * @param time the least time from grant to grant
   * @return this request
   */
  public LockRequest minHold(Duration time) {
    ask.minHold = time;
    return this;
  }

  /**
   * Promises progress: after the grant, and after each report, a larger number follows within this time, reported with
   * {@link Guard#progress}. A holder that is alive but stuck loses the lock with {@link Cause#NO_PROGRESS}.
   *
   * @param time the time
   * @return this request
   */
  public LockRequest progressWithin(Duration time) {
    ask.progressWithin = time;
    return this;
  }

  /**
   * Queues for at most this long; zero does not queue. Without it, the request waits as long as it takes.
   *
   * @param time the wait
   * @return this request
   */
  public LockRequest waitAtMost(Duration time) {
    ask.wait = time;
    return this;
  }

  /**
   * Bounds the whole request: finding a member and queueing. Then {@link TimedOutException} is thrown even if no member
   * answers, and what may have been granted is given back in the background.
   *
   * @param time the bound
   * @return this request
   */
  public LockRequest timeout(Duration time) {
    ask.timeout = time;
    return this;
  }

  /**
   * Sets the ttl of the lease that is created for the lock. Has no effect under an existing lease.
   *
   * @param ttl how long the lock stays held after this process dies
   * @return this request
   */
  public LockRequest ttl(Duration ttl) {
    ask.ttl = ttl;
    return this;
  }

  /**
   * Sets how long the lease is relied on after a renewal, instead of half of its ttl.
   *
   * @param window the time
   * @return this request
   */
  public LockRequest window(Duration window) {
    ask.window = window;
    return this;
  }

  /**
   * Declares how long the work takes to stop. A grace that does not fit the ttl is refused.
   *
   * @param grace the time
   * @return this request
   */
  public LockRequest grace(Duration grace) {
    ask.grace = grace;
    return this;
  }

  /**
   * Withholds the lock from other clients for this long after a hold that its holder did not end itself.
   *
   * @param time the lock-delay
   * @return this request
   */
  public LockRequest lockDelay(Duration time) {
    ask.lockDelay = time;
    return this;
  }

  /**
   * Limits the hold; the cluster then takes the lock away.
   *
   * @param time the limit, longer than the ttl
   * @return this request
   */
  public LockRequest maxHold(Duration time) {
    ask.maxHold = time;
    return this;
  }

  /**
   * Attaches metadata to the grant, which other clients can read.
   *
   * @param metadata the text
   * @return this request
   */
  public LockRequest metadata(String metadata) {
    return metadata(metadata.getBytes(StandardCharsets.UTF_8));
  }

  /**
   * Attaches metadata to the grant, which other clients can read.
   *
   * @param metadata the bytes
   * @return this request
   */
  public LockRequest metadata(byte[] metadata) {
    ask.metadata = metadata.clone();
    return this;
  }

  /**
   * Declares that other work of the lease goes on while this request waits, so that deadlock detection ignores it.
   *
   * @return this request
   */
  public LockRequest independent() {
    ask.independent = true;
    return this;
  }

  /**
   * Calls a function with the number of waiters ahead when the request has to queue, and again after a reconnect.
   *
   * @param then the function; it runs on a thread of the client
   * @return this request
   */
  public LockRequest onQueued(LongConsumer then) {
    ask.onQueued = then;
    return this;
  }

  /**
   * Raises the fence at the resource for each lock before the guard is handed out: from then on the previous holder cannot
   * write there. If it throws, or takes longer than the client's timeout, the lock is given back, and the request fails
   * with {@link FenceException}.
   *
   * @param fence raises it; it runs on a thread of the client, which is interrupted when the time is over, the request is
   *     cancelled or the lock is lost. The request then fails with {@link TimedOutException} (the time of {@link #timeout}),
   *     {@link FenceException} (that of the client) or {@link LostException}, whatever the fence throws. A fence that does not
   *     react to the interrupt goes on alone: the client gives the lock back once it has ended
   * @return this request
   */
  public LockRequest fence(Fence fence) {
    this.fence = fence;
    return this;
  }

  LockRequest election() {
    ask.election = true;
    return this;
  }

  /**
   * Waits in the queue until the lock is held.
   *
   * @return the guard of the lock
   * @throws InterruptedException if the thread is interrupted; the place in the queue is given up
   * @throws RefusedException if the cluster says no: {@code HELD}, {@code WAIT_TIMEOUT}, {@code DEADLOCK}, …
   * @throws TenureException if something else goes wrong; its {@link TenureException#effect} says what may be concluded
   */
  public Guard acquire() throws InterruptedException {
    if (fence != null) {
      CompletableFuture<Guard> fenced = acquireAsync();
      return Futures.await(fenced, () -> fenced.cancel(false));
    }
    Acquisition acquisition = Acquisition.start(core, held, ask);
    return new Guard(Futures.await(acquisition.result(), acquisition::abandon));
  }

  /**
   * Does what {@link #acquire} does without a thread that waits. Cancelling the future gives the place up.
   *
   * @return completes with the guard, on a thread of the client
   */
  public CompletableFuture<Guard> acquireAsync() {
    CompletableFuture<Guard> guard = new CompletableFuture<>();
    Fence fence = this.fence;
    long began = System.nanoTime();
    Acquisition acquisition;
    try {
      acquisition = Acquisition.start(core, held, ask);
    } catch (TenureException invalid) {
      guard.completeExceptionally(invalid);
      return guard;
    }
    guard.whenComplete((nothing, error) -> {
      if (guard.isCancelled()) {
        acquisition.abandon();
      }
    });
    acquisition.result().whenComplete((hold, error) -> core.callbacks.execute(() -> {
      if (error != null) {
        guard.completeExceptionally(error);
      } else {
        pass(new Guard(hold), fence, began, guard);
      }
    }));
    return guard;
  }

  private void pass(Guard guard, Fence fence, long began, CompletableFuture<Guard> to) {
    Throwable refused = null;
    // The caller may have completed the future meanwhile, as orTimeout does: then no fence is raised for it.
    if (fence != null && !to.isDone()) {
      try {
        raise(guard, fence, began, to);
      } catch (Throwable error) {
        refused = error;
      }
    }
    boolean taken = refused == null ? to.complete(guard) : to.completeExceptionally(refused);
    // A cancelled request gives the hold back by itself. Why the work does not begin counts, not how the release ends.
    if (refused != null && taken || !taken && !to.isCancelled()) {
      guard.releaseAsync();
    }
  }

  /** Raises the fence within the time of any request, and within what is left of the caller's own. */
  private void raise(Guard guard, Fence fence, long began, CompletableFuture<Guard> to) {
    Duration within = core.settings.timeout();
    Duration left = ask.timeout == null ? within : ask.timeout.minusNanos(System.nanoTime() - began);
    boolean limited = left.compareTo(within) < 0;
    Duration most = limited ? left : within;
    String why = "the fence of " + guard.name() + " was not raised: it did not end within " + most.toMillis() + "ms";
    Supplier<TenureException> late =
        () -> limited ? new TimedOutException(Effect.NONE, why) : new FenceException(why, null);
    FenceThread.raise(guard, fence, most, late, to);
  }

  /**
   * Does not queue: returns nothing if another client holds the lock.
   *
   * @return the guard, if the lock was free
   * @throws InterruptedException if the thread is interrupted
   */
  public Optional<Guard> tryAcquire() throws InterruptedException {
    if (ask.wait == null) {
      ask.wait = Duration.ZERO;
    }
    try {
      return Optional.of(acquire());
    } catch (RefusedException refused) {
      if (refused.reason().equals("HELD") || refused.reason().equals("WAIT_TIMEOUT")) {
        return Optional.empty();
      }
      throw refused;
    }
  }

  /**
   * Acquires the lock, runs the work in this thread, and gives the lock back. See {@link Guard#run}.
   *
   * @param work the work; an interrupt means that it must stop
   * @param <X> what the work may throw
   * @throws X if the work fails while the lock is held
   * @throws InterruptedException if the thread is interrupted while it waits for the lock
   * @throws LostException if the lock was lost before the work had ended
   */
  public <X extends Exception> void run(Action<X> work) throws X, InterruptedException {
    try (Guard guard = acquire()) {
      guard.run(work);
    }
  }

  /**
   * Does what {@link #run} does, for work with a result.
   *
   * @param work the work; an interrupt means that it must stop
   * @param <T> what the work returns
   * @param <X> what the work may throw
   * @return what the work returned, if the lock was held until it had ended
   * @throws X if the work fails while the lock is held
   * @throws InterruptedException if the thread is interrupted while it waits for the lock
   * @throws LostException if the lock was lost before the work had ended
   */
  public <T, X extends Exception> T call(Work<T, X> work) throws X, InterruptedException {
    try (Guard guard = acquire()) {
      return guard.call(work);
    }
  }
}
