package dev.tenure.client.internal;

import dev.tenure.client.Lost;
import java.util.concurrent.locks.ReentrantLock;

/** Interrupts the thread that works under a lock when the lock is lost, and never after the work has ended. */
public final class WorkThread {
  private final ReentrantLock lock = new ReentrantLock();
  private final Thread worker = Thread.currentThread();
  private final Runnable unlisten;
  private boolean working = true;
  private boolean interrupted;

  public WorkThread(Signal signal) {
    unlisten = signal.onFire(this::interrupt);
  }

  private void interrupt(Lost loss) {
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

  /** The work has ended. An interrupt that was for it does not stay with the thread. */
  public void ended() {
    unlisten.run();
    lock.lock();
    try {
      working = false;
      if (interrupted) {
        Thread.interrupted();
      }
    } finally {
      lock.unlock();
    }
  }
}
