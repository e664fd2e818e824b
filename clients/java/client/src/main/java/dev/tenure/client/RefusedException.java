package dev.tenure.client;

import java.time.Duration;
import java.util.Optional;
import java.util.Set;

/** The cluster decided, and the answer is no. Nothing was done. */
public final class RefusedException extends TenureException {
  private static final long serialVersionUID = 1L;

  /** The reasons after which the same request may succeed later. */
  private static final Set<String> PASSING = Set.of(
      "HELD", "WAIT_TIMEOUT", "REQUEST_WINDOW", "REQUESTS_FULL", "QUEUE_FULL", "TOO_MANY_LEASES", "NO_SPACE",
      "QUOTA_EXCEEDED", "QUIET", "DRAINING", "NOT_LEADER", "NO_LEADER", "NO_QUORUM", "DEADLINE", "OVERLOADED",
      "QUOTA", "SHUTTING_DOWN", "DISK_FULL", "CORRUPT", "TOO_SLOW", "SLOW_CONSUMER", "NOT_CAUGHT_UP", "LEVEL_NOT_KNOWN",
      "MEMBERSHIP_CHANGING", "TOO_MANY_HOPS");

  private final transient Holder holder;

  /** What to do next; empty if the cluster does not say. */
  private final String next;

  /** When to try again; zero if the cluster does not say. */
  private final Duration retryAfter;

  /**
   * Creates a refusal.
   *
   * @param reason the stable word
   * @param message the sentence for people
   * @param holder who has the lock; null if that is not why, or not known
   */
  public RefusedException(String reason, String message, Holder holder) {
    this(reason, message, holder, "", Duration.ZERO);
  }

  /**
   * Creates a refusal of the cluster.
   *
   * @param reason the stable word
   * @param message the sentence for people
   * @param holder who has the lock; null if that is not why, or not known
   * @param next what to do next; empty if the cluster does not say
   * @param retryAfter when to try again; zero if the cluster does not say
   */
  public RefusedException(String reason, String message, Holder holder, String next, Duration retryAfter) {
    super(reason, Effect.NONE, message);
    this.holder = holder;
    this.next = next;
    this.retryAfter = retryAfter;
  }

  /**
   * Returns what to do next, if the cluster says so.
   *
   * @return a sentence for people
   */
  public Optional<String> next() {
    return Optional.of(next).filter(it -> !it.isEmpty());
  }

  /**
   * Returns how long to wait before another try, if the cluster says so.
   *
   * @return the time
   */
  public Optional<Duration> retryAfter() {
    return Optional.of(retryAfter).filter(it -> !it.isZero());
  }

  /**
   * Returns who has the lock, if the reason is {@code HELD} or {@code TOKEN_OUTDATED} and the cluster said it.
   *
   * @return the holder
   */
  public Optional<Holder> holder() {
    return Optional.ofNullable(holder);
  }

  @Override
  public boolean retryable() {
    return PASSING.contains(reason());
  }
}
