package dev.tenure.client;

import java.time.Duration;
import java.util.Optional;

/** The request cannot be as it is. Nothing was sent. */
public final class InvalidRequestException extends TenureException {
  private static final long serialVersionUID = 1L;

  /** The setting that cannot be as it is. */
  private final String field;

  /** What the setting must exceed. */
  private final Duration least;

  /** What the setting may be at most. */
  private final Duration most;

  /**
   * Creates the exception.
   *
   * @param reason the stable word, the same that the cluster would have used
   * @param message the sentence for people
   */
  public InvalidRequestException(String reason, String message) {
    this(reason, message, null, null, null);
  }

  /**
   * Creates the exception of a time that does not fit.
   *
   * @param reason the stable word
   * @param message the sentence for people
   * @param field the name of the setting; null if there is none
   * @param least the setting must be longer than this; null for no such bound
   * @param most the setting must not be longer than this; null for no such bound
   */
  public InvalidRequestException(String reason, String message, String field, Duration least, Duration most) {
    super(reason, Effect.NONE, message);
    this.field = field;
    this.least = least;
    this.most = most;
  }

  /**
   * Returns the setting that cannot be as it is.
   *
   * @return for example {@code grace}
   */
  public Optional<String> field() {
    return Optional.ofNullable(field);
  }

  /**
   * Returns what the setting must exceed.
   *
   * @return the bound, if there is one
   */
  public Optional<Duration> least() {
    return Optional.ofNullable(least);
  }

  /**
   * Returns what the setting may be at most.
   *
   * @return the bound, if there is one
   */
  public Optional<Duration> most() {
    return Optional.ofNullable(most);
  }

  @Override
  public boolean retryable() {
    return false;
  }
}
