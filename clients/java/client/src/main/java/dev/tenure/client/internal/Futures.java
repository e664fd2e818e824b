package dev.tenure.client.internal;

import dev.tenure.client.TenureException;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import java.util.function.UnaryOperator;

/** Joins results of the loop, and lets callers wait for them. */
public final class Futures {
  private Futures() {}

  static <T> void pass(T value, Throwable error, CompletableFuture<T> to) {
    if (error != null) {
      to.completeExceptionally(error);
    } else {
      to.complete(value);
    }
  }

  /** Completes without a value; an error may be replaced, or is forgiven if the replacement is null. */
  static CompletableFuture<Void> then(CompletableFuture<?> from, UnaryOperator<Throwable> replace) {
    CompletableFuture<Void> done = new CompletableFuture<>();
    from.whenComplete((value, error) -> pass(null, error == null ? null : replace.apply(error), done));
    return done;
  }

  /** Completes when both have, with the first error. */
  static CompletableFuture<Void> both(CompletableFuture<Void> one, CompletableFuture<Void> other) {
    CompletableFuture<Void> done = new CompletableFuture<>();
    one.whenComplete((nothing, error) -> other.whenComplete((none, second) -> {
      pass(null, error != null ? error : second, done);
    }));
    return done;
  }

  /**
   * Waits for a result. An error is thrown with the caller's own stack. If the thread is interrupted, {@code abandon}
   * runs, and what the result would have been is given up.
   */
  public static <T> T await(CompletableFuture<T> future, Runnable abandon) throws InterruptedException {
    try {
      return future.get();
    } catch (InterruptedException interrupted) {
      abandon.run();
      throw interrupted;
    } catch (ExecutionException failed) {
      throw rethrown(failed.getCause());
    }
  }

  /** Returns the error as the caller's own. */
  public static RuntimeException rethrown(Throwable error) {
    if (error instanceof TenureException it) {
      it.setStackTrace(StackWalker.getInstance().walk(frames -> frames
          .skip(2)
          .map(StackWalker.StackFrame::toStackTraceElement)
          .toArray(StackTraceElement[]::new)));
      return it;
    }
    if (error instanceof Error it) {
      throw it;
    }
    return error instanceof RuntimeException it ? it : new IllegalStateException(error);
  }
}
