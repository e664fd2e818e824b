package dev.tenure.client;

import java.util.List;

/** The client was to close, and guards still exist at the end of the time. */
public final class StillHeldException extends TenureException {
  private static final long serialVersionUID = 1L;

  private final transient List<String> locks;

  /**
   * Creates the exception.
   *
   * @param locks the locks of these guards
   */
  public StillHeldException(List<String> locks) {
    super("STILL_HELD", Effect.NONE, "still held: " + String.join(", ", locks));
    this.locks = List.copyOf(locks);
  }

  /**
   * Returns the locks whose work has not stopped.
   *
   * @return their names
   */
  public List<String> locks() {
    return locks;
  }

  @Override
  public boolean retryable() {
    return false;
  }
}
