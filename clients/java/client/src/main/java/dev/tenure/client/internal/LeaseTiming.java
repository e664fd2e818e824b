package dev.tenure.client.internal;

import dev.tenure.client.InvalidRequestException;
import java.time.Duration;

/**
 * The times of one lease, all derived from its ttl: how long it is relied on after a renewal, and when it is renewed.
 * Durations are microseconds; a fraction is dropped.
 */
public final class LeaseTiming {
  /** The bound on the difference of clock rates: some fifteen times the real difference. */
  private static final long RATE_ERROR_PPM = 10_000;

  private static final long MILLION = 1_000_000;
  private static final Duration TTL_MIN = Duration.ofMillis(100);
  private static final Duration TTL_MAX = Duration.ofHours(1);

  private final long ttl;
  private final long window;
  private final long stop;

  private LeaseTiming(long ttl, long window, long stop) {
    this.ttl = ttl;
    this.window = window;
    this.stop = stop;
  }

  /** Computes the default times of a ttl: the lease is relied on for half of it after a renewal. */
  public static LeaseTiming of(Duration ttl) {
    if (ttl.compareTo(TTL_MIN) < 0 || ttl.compareTo(TTL_MAX) > 0) {
      String message = "a ttl of " + shown(ttl) + " is not between 100ms and 1h";
      throw new InvalidRequestException("INVALID_TTL", message, "ttl", null, null);
    }
    // The cluster counts ttls in milliseconds.
    long micros = ttl.toMillis() * 1_000;
    return new LeaseTiming(micros, micros / 2, 0);
  }

  /** Declares how long the work may take to stop once it is told to. */
  public LeaseTiming stopWithin(Duration grace) {
    Duration most = micros(Math.max(0, surelyLivesMicros() - window));
    if (grace.isNegative() || grace.compareTo(most) > 0) {
      String message = "grace " + shown(grace) + " does not fit ttl " + shown(ttl()) + " (at most " + shown(most) + ")";
      throw new InvalidRequestException("INVALID_FIELD", message, "grace", null, most);
    }
    return new LeaseTiming(ttl, window, grace.toNanos() / 1_000);
  }

  /** Sets how long the lease is relied on after a renewal, instead of half of the ttl. */
  public LeaseTiming withWindow(Duration window) {
    Duration least = micros(ttl / 3);
    Duration most = micros(Math.max(0, surelyLivesMicros() - stop));
    if (window.compareTo(least) <= 0 || window.compareTo(most) > 0) {
      String range = "more than " + shown(least) + ", at most " + shown(most);
      String message = "window " + shown(window) + " does not fit ttl " + shown(ttl()) + " (" + range + ")";
      throw new InvalidRequestException("INVALID_FIELD", message, "window", least, most);
    }
    return new LeaseTiming(ttl, window.toNanos() / 1_000, stop);
  }

  /** Returns how long the lease lives in the cluster after a renewal. */
  public Duration ttl() {
    return micros(ttl);
  }

  /** Returns how long the client relies on the lease after a renewal was sent. */
  public long windowMicros() {
    return window;
  }

  /** Returns how long after a renewal was sent the cluster surely keeps the lease, by the clock of this machine. */
  public long surelyLivesMicros() {
    return ttl * (MILLION - RATE_ERROR_PPM) / (MILLION + RATE_ERROR_PPM);
  }

  /** Returns how long after a renewal was sent the next one is overdue. */
  public long overdueMicros() {
    return (ttl / 3 + window) / 2;
  }

  /** Returns when the next renewal is sent, counted from the last acknowledged one. */
  public long renewMicros() {
    return ttl / 3;
  }

  /** Returns how long one attempt may take, and how soon the next one follows. */
  public long retryMicros() {
    return ttl / 24;
  }

  private static Duration micros(long micros) {
    return Duration.ofNanos(micros * 1_000);
  }

  private static String shown(Duration time) {
    boolean whole = time.toMillis() % 1_000 == 0;
    return whole ? time.toSeconds() + "s" : time.toMillis() + "ms";
  }
}
