package dev.tenure.client;

/**
 * The caller's own limit ({@link LockRequest#timeout}) has passed. What may still be granted is given back in the
 * background.
 */
public final class TimedOutException extends TenureException {
  private static final long serialVersionUID = 1L;

  /**
   * Creates the exception.
   *
   * @param effect whether the request may have taken effect
   * @param message what was waited for
   */
  public TimedOutException(Effect effect, String message) {
    super("TIMEOUT", effect, message);
  }

  @Override
  public boolean retryable() {
    return effect() == Effect.NONE;
  }
}
