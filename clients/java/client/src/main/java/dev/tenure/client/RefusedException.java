package dev.tenure.client;

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

  /**
   * Creates a refusal.
   *
   * @param reason the stable word
   * @param message the sentence for people
   * @param holder who has the lock; null if that is not why, or not known
   */
  public RefusedException(String reason, String message, Holder holder) {
    super(reason, Effect.NONE, message);
    this.holder = holder;
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
