package dev.tenure.client;

import java.time.Duration;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.Executor;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.ReentrantLock;
import java.util.function.Supplier;

/**
 * Raises a fence in this thread, which is interrupted when the time is over, the lock is lost or the request is cancelled.
 * A fence that does not react to the interrupt does not hold up its request.
 */
final class FenceThread {
  private final ReentrantLock lock = new ReentrantLock();
  private final Thread thread = Thread.currentThread();
  private boolean working = true;
  private boolean interrupted;

  private FenceThread() {}

  /**
   * Raises the fence for every lock of the guard.
   *
   * @param within how long the fence may take
   * @param late makes the exception of a fence that takes longer
   * @param request fails as soon as the time is over or the lock is lost, also if the fence goes on
   * @throws FenceException if the fence refuses
   * @throws LostException if the lock is lost meanwhile
   */
  static void raise(Guard guard, Fence fence, Duration within, Supplier<TenureException> late, CompletableFuture<Guard> request) {
    FenceThread raising = new FenceThread();
    Executor callbacks = guard.callbacks();
    CompletableFuture<Void> over = new CompletableFuture<Void>().orTimeout(within.toNanos(), TimeUnit.NANOSECONDS);
    over.whenComplete((nothing, passed) -> {
      raising.interrupt();
      if (passed != null) {
        callbacks.execute(() -> request.completeExceptionally(late.get()));
      }
    });
    request.whenComplete((nothing, cancelled) -> raising.interrupt());
    guard.onLost(lost -> {
      if (raising.isWorking()) {
        request.completeExceptionally(new LostException(lost));
      }
    });
    try {
      guard.run(it -> {
        for (HeldLock lock : it.locks()) {
          fence.raise(lock);
        }
      });
    } catch (LostException lost) {
      throw lost;
    } catch (Throwable refused) {
      // Also an Error, such as a failed assertion: the client owns the thread, so the caller would not learn of it.
      if (raising.end()) {
        throw late.get();
      }
      throw new FenceException("the fence of " + guard.name() + " was not raised: " + refused.getMessage(), refused);
    } finally {
      raising.end();
      over.complete(null);
    }
  }

  private boolean isWorking() {
    lock.lock();
    try {
      return working;
    } finally {
      lock.unlock();
    }
  }

  private void interrupt() {
    lock.lock();
    try {
      if (working) {
        interrupted = true;
        thread.interrupt();
      }
    } finally {
      lock.unlock();
    }
  }

  /** The fence was raised, or not. Returns whether it was interrupted; that does not stay with the thread. */
  private boolean end() {
    lock.lock();
    try {
      if (working && interrupted) {
        Thread.interrupted();
      }
      working = false;
      return interrupted;
    } finally {
      lock.unlock();
    }
  }
}
