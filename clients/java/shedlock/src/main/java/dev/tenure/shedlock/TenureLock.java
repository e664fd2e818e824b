package dev.tenure.shedlock;

import dev.tenure.client.Guard;
import dev.tenure.client.Lost;
import dev.tenure.client.LostException;
import java.lang.System.Logger;
import java.lang.System.Logger.Level;
import java.time.Duration;
import java.time.Instant;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.ReentrantLock;
import net.javacrumbs.shedlock.core.AbstractSimpleLock;
import net.javacrumbs.shedlock.core.LockConfiguration;

/** One lock that a task holds. A loss interrupts the thread that took it, until the task has ended. */
final class TenureLock extends AbstractSimpleLock {
  private static final Logger LOG = System.getLogger("dev.tenure.shedlock");

  private final Guard guard;
  private final Thread worker = Thread.currentThread();
  private final ReentrantLock lock = new ReentrantLock();
  private boolean working = true;
  private boolean interrupted;

  TenureLock(Guard guard, LockConfiguration configuration) {
    super(configuration);
    this.guard = guard;
    guard.onLost(this::interrupt);
  }

  private void interrupt(Lost lost) {
    lock.lock();
    try {
      if (working) {
        interrupted = true;
        worker.interrupt();
      }
    } finally {
      lock.unlock();
    }
  }

  @Override
  protected void doUnlock() {
    lock.lock();
    try {
      working = false;
      if (interrupted) {
        // The interrupt was for the task, which has ended.
        Thread.interrupted();
      }
    } finally {
      lock.unlock();
    }
    Duration left = Duration.between(Instant.now(), lockConfiguration.getLockAtLeastUntil());
    if (left.isNegative() || left.isZero() || guard.isLost()) {
      release();
    } else {
      CompletableFuture.delayedExecutor(left.toMillis(), TimeUnit.MILLISECONDS).execute(this::release);
    }
  }

  private void release() {
    try {
      guard.close();
    } catch (LostException lost) {
      // ShedLock calls this in a finally block: an exception here would hide that of the task.
      String name = lockConfiguration.getName();
      LOG.log(Level.ERROR, "task {0} may have overlapped with another: {1}", name, lost.getMessage());
    }
  }
}
