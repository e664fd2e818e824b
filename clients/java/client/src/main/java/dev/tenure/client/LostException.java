package dev.tenure.client;

/** The lock or lease was held and is lost. The work under it must stop, or was stopped. */
public final class LostException extends TenureException {
  private static final long serialVersionUID = 1L;

  private final transient Lost lost;

  /**
   * Creates the exception of a loss.
   *
   * @param lost the loss
   */
  public LostException(Lost lost) {
    super("LOST", Effect.NONE, "lost: " + lost);
    this.lost = lost;
  }

  /**
   * Returns the loss: why, by whom.
   *
   * @return the loss
   */
  public Lost lost() {
    return lost;
  }

  @Override
  public boolean retryable() {
    return false;
  }
}
