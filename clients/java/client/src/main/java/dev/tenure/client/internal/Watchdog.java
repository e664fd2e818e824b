package dev.tenure.client.internal;

import java.lang.System.Logger;
import java.lang.System.Logger.Level;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.Condition;
import java.util.concurrent.locks.ReentrantLock;

/**
 * A thread that notices losses by the clock alone, also if the loop is busy. It looks at the clock in short steps,
 * because the timers of the JDK stand still while the machine is suspended.
 */
final class Watchdog {
  private static final Logger LOG = System.getLogger("dev.tenure.client");
  private static final long STEP = 50_000;

  private final Core core;
  private final ReentrantLock lock = new ReentrantLock();
  private final Condition changed = lock.newCondition();
  private long next = Long.MAX_VALUE;
  private boolean stopped;

  Watchdog(Core core) {
    this.core = core;
  }

  void start() {
    Thread thread = new Thread(this::watch, "tenure-watchdog");
    thread.setDaemon(true);
    thread.start();
  }

  /** Makes the thread look at this instant at the latest. */
  void lookBefore(long at) {
    lock.lock();
    try {
      if (at < next) {
        next = at;
        changed.signal();
      }
    } finally {
      lock.unlock();
    }
  }

  void stop() {
    lock.lock();
    try {
      stopped = true;
      changed.signal();
    } finally {
      lock.unlock();
    }
  }

  private void watch() {
    while (await()) {
      long earliest = Long.MAX_VALUE;
      for (HeldLease lease : core.leases()) {
        ClockReading now = MachineClock.read();
        earliest = Math.min(earliest, lease.with(it -> it.look(now) ? Long.MAX_VALUE : it.lostAt()));
      }
      lookBefore(earliest);
    }
  }

  /** Waits for a step, or until the next instant changes. Only {@link #stop} ends the thread. */
  private void pause(long micros) {
    try {
      changed.await(micros, TimeUnit.MICROSECONDS);
    } catch (InterruptedException ignored) {
      // A container that interrupts all of its threads must not end the check of the clock. Waiting has cleared the flag.
      LOG.log(Level.TRACE, "the watchdog was interrupted, and goes on");
    }
  }

  /** Waits until an instant has come at which a lease may be over. Returns false when the client has stopped. */
  private boolean await() {
    lock.lock();
    try {
      while (!stopped) {
        long left = next - MachineClock.now();
        if (left <= 0) {
          // Renewals only move deadlines later, so nothing can be over before the earliest one known.
          next = Long.MAX_VALUE;
          return true;
        }
        if (next == Long.MAX_VALUE) {
          changed.awaitUninterruptibly();
        } else {
          pause(Math.min(left, STEP));
        }
      }
      return false;
    } finally {
      lock.unlock();
    }
  }
}
