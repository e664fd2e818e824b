package dev.tenure.client;

/** Why an operation did not succeed, and what the caller may conclude: the base of all exceptions of this client. */
public abstract class TenureException extends RuntimeException {
  private static final long serialVersionUID = 1L;

  /** The stable word for programs. */
  private final String reason;

  /** Whether the request may have taken effect. */
  private final Effect effect;

  TenureException(String reason, Effect effect, String message) {
    super(message);
    this.reason = reason;
    this.effect = effect;
  }

  /**
   * Returns the stable word for programs, as every API of the cluster uses it.
   *
   * @return for example {@code HELD}
   */
  public String reason() {
    return reason;
  }

  /**
   * Returns whether the request may have taken effect.
   *
   * @return what may be concluded
   */
  public Effect effect() {
    return effect;
  }

  /**
   * Returns whether nothing happened, and the same request may succeed if it is repeated later.
   *
   * @return false if the outcome is not known, or would be the same
   */
  public abstract boolean retryable();
}
