package dev.tenure.client;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import dev.tenure.client.internal.Futures;
import dev.tenure.client.internal.Hold;
import dev.tenure.client.internal.HttpCalls;
import dev.tenure.client.internal.Json;
import dev.tenure.client.internal.Upgrade;
import dev.tenure.client.internal.WorkThread;
import java.lang.System.Logger;
import java.lang.System.Logger.Level;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.List;
import java.util.Optional;
import java.util.OptionalInt;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.Executor;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.function.Consumer;

/**
 * A held lock, or several that were requested together.
 *
 * <p>While the guard is open, the client renews its lease. Closing the guard says that the work has stopped, and gives
 * the lock back. A lost lock stays lost: {@link #check}, {@link #run} and {@link #onLost} report the loss before another
 * client may start. Guards are safe for use by several threads.
 *
 * <pre>{@code
 * try (Guard guard = client.lock("report")) {
 *   for (Row row : rows) {
 *     guard.check();
 *     write(row, guard.token());
 *   }
 * }
 * }</pre>
 *
 * <p>A guard that is never closed is held, and renewed, until the process ends.
 */
public final class Guard implements AutoCloseable {
  private static final Logger LOG = System.getLogger("dev.tenure.client");

  private final Hold hold;
  private final AtomicBoolean open = new AtomicBoolean(true);

  Guard(Hold hold) {
    this.hold = hold;
  }

  /**
   * Returns the fencing token. Pass it to the resource that the lock protects. For several locks, this is the token of
   * the first by name. Tokens are unsigned; every one that a cluster grants fits a positive {@code long}.
   *
   * @return the token
   */
  public long token() {
    return hold.locks().get(0).token();
  }

  /**
   * Returns the lock's name. For several locks, this is the first by name.
   *
   * @return the name
   */
  public String name() {
    return hold.locks().get(0).name();
  }

  /**
   * Returns the slot of a semaphore, counted from 0.
   *
   * @return the slot; empty for a plain lock
   */
  public OptionalInt slot() {
    return hold.locks().get(0).slot();
  }

  /**
   * Returns every lock that the guard stands for, in the order of their names.
   *
   * @return the locks with their tokens
   */
  public List<HeldLock> locks() {
    return hold.locks();
  }

  /**
   * Returns the id of the lease that the lock is held under.
   *
   * @return the id, in decimal digits
   */
  public String lease() {
    return hold.lease().name();
  }

  /**
   * Returns a revision at which the lock was held. Its history from this revision on has everything that happened since.
   *
   * @return the revision
   */
  public long revision() {
    return hold.revision();
  }

  /**
   * Checks that the lock can be relied on at this moment. Compares the clock, sends nothing.
   *
   * @throws LostException if it cannot
   */
  public void check() {
    Optional<Lost> lost = lost();
    if (lost.isPresent()) {
      throw new LostException(lost.get());
    }
  }

  /**
   * Returns whether the lock is lost, or was given back. Compares the clock, sends nothing.
   *
   * @return whether the work must stop
   */
  public boolean isLost() {
    return lost().isPresent();
  }

  /**
   * Returns why the lock is lost. Compares the clock, sends nothing.
   *
   * @return the loss; nothing while the lock can be relied on
   */
  public Optional<Lost> lost() {
    return open.get() ? hold.check() : Optional.of(hold.lost().fired().orElse(Lost.of(Cause.RELEASED)));
  }

  /**
   * Returns the standing: valid, overdue or lost.
   *
   * @return the standing at this moment
   */
  public Standing standing() {
    return open.get() ? hold.standing() : Standing.LOST;
  }

  /**
   * Calls a function when the lock is lost, from a thread of the client, which it may block; at once if it is lost.
   * Giving the lock back is no loss.
   *
   * @param then the function
   * @return this guard
   */
  public Guard onLost(Consumer<? super Lost> then) {
    hold.lost().onFire(lost -> hold.core().callbacks.execute(() -> then.accept(lost)));
    return this;
  }

  /**
   * Returns the end of the hold: completes with the loss, or with the cause {@link Cause#RELEASED} when the last guard
   * of the hold was closed.
   *
   * @return a future that completes on a thread of the client
   */
  public CompletableFuture<Lost> ended() {
    CompletableFuture<Lost> copy = new CompletableFuture<>();
    hold.lost().ended().thenAccept(lost -> hold.core().callbacks.execute(() -> copy.complete(lost)));
    return copy;
  }

  /**
   * Runs work in this thread, and interrupts it when the lock is lost, before another client may start.
   *
   * @param work the work; an interrupt means that it must stop
   * @param <X> what the work may throw
   * @throws X if the work fails while the lock is held
   * @throws LostException if the lock was lost before the work had ended, whatever the work did then
   */
  public <X extends Exception> void run(Action<X> work) throws X {
    Guard.<Void, X>work(this, guard -> {
      work.run(guard);
      return null;
    });
  }

  /**
   * Does what {@link #run} does, for work with a result. It is returned only if the lock was held until the work ended.
   *
   * @param work the work; an interrupt means that it must stop
   * @param <T> what the work returns
   * @param <X> what the work may throw
   * @return what the work returned
   * @throws X if the work fails while the lock is held
   * @throws LostException if the lock was lost before the work had ended, whatever the work did then
   */
  public <T, X extends Exception> T call(Work<T, X> work) throws X {
    return work(this, work);
  }

  /** Runs functions of the caller. */
  Executor callbacks() {
    return hold.core().callbacks;
  }

  private static <T, X extends Exception> T work(Guard guard, Work<T, X> work) throws X {
    guard.check();
    Throwable thrown = null;
    T result = null;
    WorkThread working = new WorkThread(guard.hold.lost());
    try {
      result = work.run(guard);
    } catch (Throwable error) {
      thrown = error;
    } finally {
      working.ended();
    }
    Optional<Lost> lost = guard.lost();
    if (lost.isPresent() && lost.get().cause() != Cause.RELEASED) {
      LostException loss = new LostException(lost.get());
      if (thrown != null && thrown != loss) {
        loss.addSuppressed(thrown);
      }
      throw loss;
    }
    if (thrown != null) {
      throw Guard.<X>sneaky(thrown);
    }
    return result;
  }

  /** Rethrows what the work threw; it can be nothing else than the work may throw. */
  @SuppressWarnings("unchecked")
  private static <X extends Throwable> X sneaky(Throwable thrown) throws X {
    throw (X) thrown;
  }

  /**
   * Ties asynchronous work to the lock: if the lock is lost first, the work's future is cancelled, and the result
   * completes with {@link LostException}. The result is a success only if the lock was held until the work had ended.
   *
   * @param work the work
   * @param <T> what the work returns
   * @return the result of the work while it is held
   */
  public <T> CompletableFuture<T> whileHeld(CompletableFuture<T> work) {
    CompletableFuture<T> result = new CompletableFuture<>();
    Runnable unlisten = hold.lost().onFire(lost -> hold.core().callbacks.execute(() -> {
      work.cancel(true);
      result.completeExceptionally(new LostException(lost));
    }));
    work.whenComplete((value, error) -> {
      unlisten.run();
      Optional<Lost> lost = lost();
      if (lost.isPresent()) {
        result.completeExceptionally(new LostException(lost.get()));
      } else if (error != null) {
        result.completeExceptionally(error);
      } else {
        result.complete(value);
      }
    });
    return result;
  }

  /**
   * Returns another guard of the same hold, for a callee that closes its own. The lock is given back when the last of
   * these guards is closed. Nothing is sent.
   *
   * @return a further guard
   * @throws LostException if the lock is lost
   */
  public Guard reenter() {
    check();
    hold.enter();
    return new Guard(hold);
  }

  /**
   * Turns an exclusive hold into a shared one, without a gap. The token changes.
   *
   * @throws InterruptedException if the thread is interrupted; the outcome is not known then
   * @throws RefusedException with {@code GUARD_SHARED} while other guards of the same hold exist
   */
  public void downgrade() throws InterruptedException {
    check();
    if (hold.isShared()) {
      throw new RefusedException("GUARD_SHARED", "there are other guards of the same hold", null);
    }
    Futures.await(hold.downgrade(), () -> {});
  }

  /**
   * Turns a shared hold into an exclusive one, under a new token, once there is no other holder. The lock stays held all
   * the time: shared while this waits, before all others in the queue, and shared still if the wait is over first. If
   * another holder waits for the same already, this one is refused with {@code DEADLOCK}: release the lock then, so that
   * the other one can go on. A hold that is exclusive already stays as it is. Needs feature level 10.
   *
   * <p>If the outcome cannot be learned, the guard is lost: stop the work and close it.
   *
   * @param wait how long to wait at most; zero for not at all
   * @throws InterruptedException if the thread is interrupted; the lease leaves the queue, and if the upgrade came first,
   *     it counts
   * @throws RefusedException if the hold stays shared: {@code HELD}, {@code WAIT_TIMEOUT}, {@code DEADLOCK}; with {@code
   *     GUARD_SHARED} while other guards of the same hold exist, with {@code SEVERAL_LOCKS} if there are several locks
   */
  public void upgrade(Duration wait) throws InterruptedException {
    only();
    Upgrade upgrade = Upgrade.start(hold, wait);
    Futures.await(upgrade.result(), upgrade::abandon);
  }

  /**
   * Does what {@link #upgrade(Duration)} does, and waits as long as it takes.
   *
   * @throws InterruptedException if the thread is interrupted
   */
  public void upgrade() throws InterruptedException {
    upgrade(null);
  }

  /**
   * Gives the hold to the client of another lease, which must wait for this lock alone, in the same mode. It gets the lock
   * at once, ahead of all others; the lock is never free in between. The work must have stopped. Needs feature level 10.
   *
   * <p>If the outcome is unknown, the guard is lost: close it.
   *
   * @param lease the id of the other lease, as {@link Lease#id} returns it
   * @return the token of the other client's grant
   * @throws RefusedException with {@code NOT_WAITING} if that lease does not wait; the lock is held as before
   * @throws InterruptedException if the thread is interrupted; the outcome is not known then
   */
  public long handOn(String lease) throws InterruptedException {
    if (!lease.matches("[0-9]{1,19}")) {
      throw new InvalidRequestException("INVALID_FIELD", "`" + lease + "` is no id of a lease");
    }
    only();
    long token = Futures.await(hold.handOn(lease), () -> {});
    open.set(false);
    return token;
  }

  /**
   * Reports how far the work has come, for a lock that was taken with {@link LockRequest#progressWithin}. Only a number
   * that is larger than all before counts as progress; before the first report it is 0. One report counts for all locks
   * of the guard.
   *
   * @param number the number
   * @return in how much time a larger number is due; empty if none was promised
   * @throws InterruptedException if the thread is interrupted
   */
  public Optional<Duration> progress(long number) throws InterruptedException {
    if (number < 0) {
      throw new InvalidRequestException("INVALID_FIELD", "progress cannot be negative");
    }
    JsonNode left = Futures.await(hold.progress(number), () -> {}).path("left_ms");
    return left.isNumber() ? Optional.of(Duration.ofMillis(left.asLong())) : Optional.empty();
  }

  /** Checks that this is the only guard of its hold, and that it stands for one lock. */
  private void only() {
    check();
    if (hold.isShared()) {
      throw new RefusedException("GUARD_SHARED", "there are other guards of the same hold", null);
    }
    if (hold.locks().size() != 1) {
      throw new RefusedException("SEVERAL_LOCKS", "the guard stands for several locks", null);
    }
  }

  /**
   * Replaces the metadata of the grant, which other clients can read.
   *
   * @param metadata the new text
   * @throws InterruptedException if the thread is interrupted; the outcome is not known then
   */
  public void update(String metadata) throws InterruptedException {
    update(metadata.getBytes(StandardCharsets.UTF_8));
  }

  /**
   * Replaces the metadata of the grant, which other clients can read.
   *
   * @param metadata the new bytes
   * @throws InterruptedException if the thread is interrupted; the outcome is not known then
   */
  public void update(byte[] metadata) throws InterruptedException {
    check();
    Futures.await(hold.update(metadata), () -> {});
  }

  /**
   * Returns the token as a ticket: a JWT that the cluster signs, for a resource that must not trust a bare number.
   *
   * @return the ticket
   * @throws InterruptedException if the thread is interrupted
   */
  public String ticket() throws InterruptedException {
    check();
    HeldLock first = hold.locks().get(0);
    ObjectNode body = Json.object();
    body.put("lock", first.name()).put("lease", lease()).put("token", Json.decimal(first.token()));
    return Json.string(Futures.await(HttpCalls.ask(hold.core(), "/v1/tickets", body), () -> {}), "ticket");
  }

  /**
   * Gives the lock back and waits until the cluster has acknowledged it. The work must have stopped. While other guards
   * of the same hold are open, only this one ends.
   *
   * @throws LostException if the lock was lost before; the client tells the cluster in the background that the work has
   *     stopped
   * @throws UnknownOutcomeException if no member acknowledged it in time; the client does not renew the lease any more
   * @throws InterruptedException if the thread is interrupted; the release goes on in the background
   */
  public void release() throws InterruptedException {
    if (!open.get()) {
      return;
    }
    CompletableFuture<Void> done = releaseAsync();
    Futures.await(done, () -> {});
  }

  /**
   * Does what {@link #release} does, without waiting.
   *
   * @return completes when the cluster has acknowledged the release, or with the loss at once
   */
  public CompletableFuture<Void> releaseAsync() {
    Optional<Lost> lost = lost();
    if (!open.compareAndSet(true, false)) {
      return CompletableFuture.completedFuture(null);
    }
    CompletableFuture<Void> told = hold.leave();
    if (lost.isPresent()) {
      return CompletableFuture.failedFuture(new LostException(lost.get()));
    }
    return told.copy();
  }

  /**
   * Says that the work has stopped, and gives the lock back. Waits for the cluster's word, and gives up waiting at the
   * client's timeout or if the thread is interrupted; the release then goes on in the background, or the lease runs out.
   *
   * @throws LostException if the lock was lost before, so that the work may have overlapped with the next holder's
   */
  @Override
  public void close() {
    if (!open.get()) {
      return;
    }
    try {
      releaseAsync().get();
    } catch (InterruptedException interrupted) {
      Thread.currentThread().interrupt();
    } catch (ExecutionException failed) {
      if (failed.getCause() instanceof LostException lost) {
        throw lost;
      }
      String why = failed.getCause().getMessage();
      LOG.log(Level.WARNING, "cannot release lock `{0}`; its lease runs out: {1}", name(), why);
    }
  }

  @Override
  public String toString() {
    return "Guard" + hold.locks();
  }
}
