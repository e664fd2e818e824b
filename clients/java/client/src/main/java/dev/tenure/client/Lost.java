package dev.tenure.client;

import java.time.Duration;
import java.util.Locale;
import java.util.Objects;
import java.util.Optional;

/** A loss: its cause and, if another client or an operator caused it, who and why. */
public final class Lost {
  private final Cause cause;
  private final Duration time;
  private final String by;
  private final String reason;

  private Lost(Cause cause, Duration time, String by, String reason) {
    this.cause = Objects.requireNonNull(cause);
    this.time = time;
    this.by = by == null || by.isEmpty() ? null : by;
    this.reason = reason == null || reason.isEmpty() ? null : reason;
  }

  /**
   * Creates a loss of which only the cause is known.
   *
   * @param cause the cause
   * @return the loss
   */
  public static Lost of(Cause cause) {
    return new Lost(cause, null, null, null);
  }

  /**
   * Creates a loss that this client noticed by its clock.
   *
   * @param cause the cause
   * @param time how long the cluster was silent, the process late or the machine asleep
   * @return the loss
   */
  public static Lost after(Cause cause, Duration time) {
    return new Lost(cause, time, null, null);
  }

  /**
   * Creates a loss that the cluster reported.
   *
   * @param cause the cause
   * @param by the name of the client that caused it; null or empty if the cluster gave none
   * @param reason the reason that this client gave; null or empty if there is none
   * @return the loss
   */
  public static Lost told(Cause cause, String by, String reason) {
    return new Lost(cause, null, by, reason);
  }

  /**
   * Returns the cause.
   *
   * @return the cause
   */
  public Cause cause() {
    return cause;
  }

  /**
   * Returns how long the cluster was silent, the process late or the machine asleep.
   *
   * @return the time, if this client noticed the loss by its own clock
   */
  public Optional<Duration> time() {
    return Optional.ofNullable(time);
  }

  /**
   * Returns the name of the client that took the lock away or revoked the lease.
   *
   * @return the name, if the cluster told one
   */
  public Optional<String> by() {
    return Optional.ofNullable(by);
  }

  /**
   * Returns the reason that the other client gave. It is foreign text: filter control characters before you print it to
   * a terminal.
   *
   * @return the reason, if the cluster told one
   */
  public Optional<String> reason() {
    return Optional.ofNullable(reason);
  }

  /** Returns the loss as a sentence, for example {@code forced by ops@host: stuck for an hour}. */
  @Override
  public String toString() {
    StringBuilder text = new StringBuilder();
    if (by != null && (cause == Cause.FORCED || cause == Cause.REVOKED)) {
      text.append(cause.word()).append(" by ").append(by);
    } else {
      text.append(cause.sentence());
      if (time != null) {
        text.append(cause == Cause.CREDENTIALS_REFUSED ? "; not renewed for " : " for ");
        text.append(String.format(Locale.ROOT, "%.1fs", time.toNanos() / 1e9));
      }
    }
    if (reason != null) {
      text.append(": ").append(reason);
    }
    return text.toString();
  }

  @Override
  public boolean equals(Object other) {
    return other instanceof Lost it
        && cause == it.cause
        && Objects.equals(time, it.time)
        && Objects.equals(by, it.by)
        && Objects.equals(reason, it.reason);
  }

  @Override
  public int hashCode() {
    return Objects.hash(cause, time, by, reason);
  }
}
