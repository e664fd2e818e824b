package dev.tenure.client;

/**
 * The fence at the resource did not accept the token of a new holder. The lock is given back, and no work has begun. The
 * cause is what the {@link Fence} threw, if it threw something.
 */
public final class FenceException extends TenureException {
  private static final long serialVersionUID = 1L;

  FenceException(String message, Throwable cause) {
    super("FENCE", Effect.NONE, message);
    initCause(cause);
  }

  @Override
  public boolean retryable() {
    return false;
  }
}
