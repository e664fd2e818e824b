package dev.tenure.client;

import java.time.Duration;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.ReentrantLock;

/** Raises a fence in this thread, which is interrupted when the time is over or the request is cancelled. */
final class FenceThread {
  private final ReentrantLock lock = new ReentrantLock();
  private final Thread thread = Thread.currentThread();
  private boolean working = true;
  private boolean interrupted;

  private FenceThread() {}

  /**
   * Raises the fence for every lock of the guard.
   *
   * @throws FenceException if the fence refuses, or does not end in time
   * @throws LostException if the lock is lost meanwhile
   */
  static void raise(Guard guard, Fence fence, Duration within, CompletableFuture<Guard> request) {
    FenceThread raising = new FenceThread();
    CompletableFuture<Void> over = new CompletableFuture<Void>().orTimeout(within.toNanos(), TimeUnit.NANOSECONDS);
    over.whenComplete((nothing, late) -> raising.interrupt());
    request.whenComplete((nothing, cancelled) -> raising.interrupt());
    boolean late = false;
    try {
      guard.run(it -> {
        for (HeldLock lock : it.locks()) {
          fence.raise(lock);
        }
      });
    } catch (LostException lost) {
      throw lost;
    } catch (Throwable refused) {
      // Also an Error, such as a failed assertion: the thread is the client's, so nobody else would learn of it.
      late = raising.end();
      String why = late ? "it did not end within " + within.toMillis() + "ms" : String.valueOf(refused.getMessage());
      throw new FenceException("the fence of " + guard.name() + " was not raised: " + why, late ? null : refused);
    } finally {
      raising.end();
      over.complete(null);
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
