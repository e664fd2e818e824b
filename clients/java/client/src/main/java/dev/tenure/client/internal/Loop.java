package dev.tenure.client.internal;

import com.fasterxml.jackson.databind.node.ObjectNode;
import java.lang.System.Logger;
import java.lang.System.Logger.Level;
import java.util.concurrent.RejectedExecutionException;
import java.util.concurrent.ScheduledThreadPoolExecutor;
import java.util.concurrent.TimeUnit;
import java.util.function.Supplier;

/**
 * The one thread of a client that talks to the cluster. Sessions, requests and renewals live on it, so they need no
 * locks. No code of the caller ever runs here.
 */
final class Loop {
  private static final Logger LOG = System.getLogger("dev.tenure.client");

  private final ScheduledThreadPoolExecutor executor;
  private final Supplier<String> traceparent;
  private volatile Thread thread;

  /** The span of the caller whose task runs; null for none. Only on the loop. */
  private String span;

  /** A task that runs later, unless it is cancelled. */
  interface Timer {
    void cancel();
  }

  Loop(String name, Supplier<String> traceparent) {
    this.traceparent = traceparent == null ? () -> null : traceparent;
    executor = new ScheduledThreadPoolExecutor(1, task -> {
      Thread made = new Thread(task, name);
      made.setDaemon(true);
      thread = made;
      return made;
    });
    executor.setRemoveOnCancelPolicy(true);
    executor.setExecuteExistingDelayedTasksAfterShutdownPolicy(false);
  }

  /** Runs a task on the loop: at once if this is the loop, else when its turn comes. */
  void run(Runnable task) {
    if (Thread.currentThread() == thread) {
      task.run();
    } else {
      String caller = span();
      later(() -> {
        span = caller;
        try {
          task.run();
        } finally {
          span = null;
        }
      });
    }
  }

  /** Returns the W3C {@code traceparent} of the caller: on the loop, of the one whose task runs. Null for none. */
  String span() {
    if (Thread.currentThread() == thread) {
      return span;
    }
    try {
      return traceparent.get();
    } catch (RuntimeException broken) {
      // A request without a span is better than none.
      LOG.log(Level.DEBUG, "the caller's span cannot be read", broken);
      return null;
    }
  }

  /** Adds the span to a request, if there is one. */
  static void trace(ObjectNode request, String span) {
    if (span != null && !span.isEmpty()) {
      request.put("traceparent", span);
    }
  }

  /** Queues a task, also if this is the loop. */
  void later(Runnable task) {
    try {
      executor.execute(guarded(task));
    } catch (RejectedExecutionException stopped) {
      LOG.log(Level.TRACE, "the client has stopped");
    }
  }

  /** Runs a task after so many microseconds. */
  Timer after(long micros, Runnable task) {
    try {
      var future = executor.schedule(guarded(task), Math.max(0, micros), TimeUnit.MICROSECONDS);
      return () -> future.cancel(false);
    } catch (RejectedExecutionException stopped) {
      LOG.log(Level.TRACE, "the client has stopped");
      return () -> {};
    }
  }

  /** Drops everything that has not run. */
  void stop() {
    executor.shutdownNow();
  }

  private static Runnable guarded(Runnable task) {
    return () -> {
      try {
        task.run();
      } catch (RuntimeException | Error error) {
        // One broken request must not end the renewal of all leases.
        LOG.log(Level.ERROR, "a task of the client failed", error);
      }
    };
  }
}
