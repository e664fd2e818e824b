package dev.tenure.client;

/** No member took the request. It had no effect. */
public final class UnavailableException extends TenureException {
  private static final long serialVersionUID = 1L;

  /**
   * Creates the exception.
   *
   * @param message what was tried
   */
  public UnavailableException(String message) {
    super("UNAVAILABLE", Effect.NONE, message);
  }

  @Override
  public boolean retryable() {
    return true;
  }
}
