package dev.tenure.client.internal;

import dev.tenure.client.ClosedException;
import dev.tenure.client.Effect;
import dev.tenure.client.TenureException;
import dev.tenure.client.TimedOutException;
import java.time.Duration;
import java.util.concurrent.CancellationException;
import java.util.concurrent.CompletableFuture;

/**
 * A lock request on its way: what is the same under an existing lease and under a new one. The caller may give it up at
 * any moment; what may still be granted is given back then. Runs on the loop.
 */
public abstract class Acquisition {
  /** The pause after a session ended or a member could not serve. */
  static final long PAUSE = 20_000;

  /** The bound up to which repeated pauses grow. */
  static final long PAUSE_MAX = 500_000;

  /** The cluster ends a wait by itself. The client waits this much longer for its word, and then ends it. */
  static final long SLACK = 50_000;

  /** How long a request that does not queue waits for its answer: longer than a change of leader takes. */
  static final long AT_ONCE = 3_000_000;

  final Core core;
  final AskOptions ask;
  final long began = MachineClock.now();
  final String span;

  /** When the wait is over; the largest value for no limit. */
  final long until;

  /** Whether that is the caller's limit on the whole request, and not the wait that it asked for. */
  private final boolean limited;

  private final CompletableFuture<Hold> result;
  private Runnable unlisten = () -> {};

  Acquisition(Core core, AskOptions ask) {
    this.core = core;
    this.ask = ask;
    this.result = core.awaited();
    this.span = core.loop.span();
    long wait = Long.MAX_VALUE;
    if (ask.isTry()) {
      wait = ask.timeout == null ? Math.min(AT_ONCE, core.settings.timeoutMicros()) : Long.MAX_VALUE;
    } else if (ask.wait != null) {
      wait = Settings.micros(ask.wait);
    }
    long limit = ask.timeout == null ? Long.MAX_VALUE : Settings.micros(ask.timeout);
    this.limited = limit < wait;
    long least = Math.min(wait, limit);
    this.until = least == Long.MAX_VALUE ? Long.MAX_VALUE : began + least;
  }

  /** Starts the request: under a lease, or under a new one of its own if {@code held} is null. */
  public static Acquisition start(Core core, HeldLease held, AskOptions ask) {
    ask.check();
    if (held == null) {
      ask.timing(core.settings);
    }
    return run(held == null ? new OwnAcquisition(core, ask) : new LeaseAcquisition(held, ask));
  }

  static <T extends Acquisition> T run(T request) {
    Acquisition made = request;
    Core core = made.core;
    core.loop.run(() -> {
      if (core.isClosing()) {
        made.fail(new ClosedException());
        return;
      }
      made.unlisten = core.onClosing(() -> made.stop(new ClosedException()));
      made.begin();
    });
    return request;
  }

  public CompletableFuture<Hold> result() {
    return result;
  }

  /** The caller does not wait any more: gives up the place, or what was granted and not taken. */
  public void abandon() {
    core.loop.run(() -> {
      if (result.isDone() && !result.isCompletedExceptionally()) {
        result.join().leave();
      } else {
        stop(new CancellationException("the request was given up"));
      }
    });
  }

  abstract void begin();

  /** Gives back what the cluster may have granted or may still grant. */
  abstract void giveUp();

  final boolean isDone() {
    return result.isDone();
  }

  /** Ends the request without a grant, and gives up its place. */
  final void stop(RuntimeException why) {
    if (!result.isDone()) {
      fail(why);
      giveUp();
    }
  }

  final void fail(RuntimeException why) {
    unlisten.run();
    result.completeExceptionally(why);
  }

  final void succeed(Hold hold) {
    unlisten.run();
    result.complete(hold);
  }

  /** Returns what is left of the wait, in microseconds; negative for no limit. */
  final long left() {
    return until == Long.MAX_VALUE ? -1 : Math.max(0, until - MachineClock.now());
  }

  /** Returns the error of a wait that is over by the caller's limit, if it is that; else the given one. */
  final TenureException outOfTime(TenureException otherwise, Effect effect) {
    if (!limited) {
      return otherwise;
    }
    String what = "timed out after " + shown(ask.timeout) + " waiting for " + String.join(", ", ask.locks);
    String more = effect == Effect.UNKNOWN ? "; it may have been granted, and is given back" : "";
    return new TimedOutException(effect, what + more);
  }

  private static String shown(Duration time) {
    return time.toMillis() % 1_000 == 0 ? time.toSeconds() + "s" : time.toMillis() + "ms";
  }

  final void tellQueued(long ahead) {
    if (ask.onQueued != null) {
      core.callbacks.execute(() -> ask.onQueued.accept(ahead));
    }
  }
}
