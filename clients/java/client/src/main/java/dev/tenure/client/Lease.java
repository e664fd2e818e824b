package dev.tenure.client;

import dev.tenure.client.internal.AskOptions;
import dev.tenure.client.internal.Core;
import dev.tenure.client.internal.Futures;
import dev.tenure.client.internal.HeldLease;
import dev.tenure.client.internal.LeaseState;
import dev.tenure.client.internal.MachineClock;
import java.util.List;
import java.util.Optional;
import java.util.concurrent.ExecutionException;
import java.util.function.Consumer;

/**
 * A lease: the client's time-limited claim, under which several locks and keys are held, and lost, together. The client
 * renews it until it is closed.
 */
public final class Lease implements AutoCloseable {
  private static final System.Logger LOG = System.getLogger("dev.tenure.client");

  private final Core core;
  private final HeldLease held;

  Lease(Core core, HeldLease held) {
    this.core = core;
    this.held = held;
  }

  HeldLease held() {
    return held;
  }

  /**
   * Returns the id of the lease.
   *
   * @return the id, in decimal digits
   */
  public String id() {
    return held.name();
  }

  /**
   * Waits until the lock is held under this lease. A second request of this process for a held lock waits, too.
   *
   * @param lock the name of the lock
   * @return the guard
   * @throws InterruptedException if the thread is interrupted; the place in the queue is given up
   */
  public Guard lock(String lock) throws InterruptedException {
    return request(lock).acquire();
  }

  /**
   * Begins a request for a lock under this lease, or for several that are acquired together or not at all.
   *
   * @param locks the names of the locks
   * @return the request
   */
  public LockRequest request(String... locks) {
    return new LockRequest(core, held, List.of(locks));
  }

  /**
   * Waits until any one of several locks is held under this lease; see {@link Client#lockAny}. A second request of this
   * process for one of these locks waits for the first guard.
   *
   * @param locks the names of the locks
   * @return the guard
   * @throws InterruptedException if the thread is interrupted; the places in the queues are given up
   */
  public Guard lockAny(String... locks) throws InterruptedException {
    return requestAny(locks).acquire();
  }

  /**
   * Begins a request for any one of several locks under this lease; see {@link Client#lockAny}.
   *
   * @param locks the names of the locks
   * @return the request
   */
  public LockRequest requestAny(String... locks) {
    return new LockRequest(core, held, AskOptions.Choice.ANY, List.of(locks));
  }

  /**
   * Returns why the lease is lost. Compares the clock, sends nothing.
   *
   * @return the loss; nothing while the lease can be relied on
   */
  public Optional<Lost> lost() {
    return held.with(it -> it.check(MachineClock.read()));
  }

  /**
   * Checks that the lease can be relied on at this moment.
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
   * Calls a function when the lease is lost or closed, from a thread of the client, which it may block.
   *
   * @param then the function
   * @return this lease
   */
  public Lease onLost(Consumer<? super Lost> then) {
    held.lost().onFire(lost -> core.callbacks.execute(() -> then.accept(lost)));
    return this;
  }

  /**
   * Ends the lease, and with it the keys that are bound to it, and waits for the cluster's word.
   *
   * @throws InterruptedException if the thread is interrupted; the revocation goes on in the background
   * @throws RefusedException with {@code LEASE_IN_USE} if guards of the lease are open
   * @throws LostException if the lease was lost before
   */
  public void release() throws InterruptedException {
    checkUnused();
    Optional<Lost> lost = lost();
    if (lost.isPresent() && lost.get().cause() == Cause.RELEASED) {
      return;
    }
    var done = core.revoke(held);
    if (lost.isPresent()) {
      throw new LostException(lost.get());
    }
    Futures.await(done, () -> {});
  }

  private void checkUnused() {
    List<String> used = held.with(LeaseState::inUse);
    if (!used.isEmpty()) {
      String message = "the lease has guards, whose work may not have stopped: " + String.join(", ", used);
      throw new RefusedException("LEASE_IN_USE", message, null);
    }
  }

  /**
   * Ends the lease if no guard of it is open. What cannot be acknowledged is logged, and ends with the ttl.
   *
   * @throws RefusedException with {@code LEASE_IN_USE} if guards of the lease are open
   */
  @Override
  public void close() {
    checkUnused();
    try {
      core.revoke(held).get();
    } catch (InterruptedException interrupted) {
      Thread.currentThread().interrupt();
    } catch (ExecutionException failed) {
      LOG.log(System.Logger.Level.WARNING, "cannot end lease {0}: {1}", id(), failed.getCause().getMessage());
    }
  }
}
