package dev.tenure.client;

/** The client was closed and takes no more requests. Nothing happened. */
public final class ClosedException extends TenureException {
  private static final long serialVersionUID = 1L;

  /** Creates the exception. */
  public ClosedException() {
    super("CLOSED", Effect.NONE, "the client is closed");
  }

  @Override
  public boolean retryable() {
    return false;
  }
}
