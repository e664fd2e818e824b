package dev.tenure.client;

/** The history does not reach back to the revision that a watch asked for. */
public final class CompactedException extends TenureException {
  private static final long serialVersionUID = 1L;

  /** The oldest retained revision. */
  private final long oldest;

  /**
   * Creates the exception.
   *
   * @param oldest the oldest retained revision
   */
  public CompactedException(long oldest) {
    super("COMPACTED", Effect.NONE, "the oldest retained revision is " + Long.toUnsignedString(oldest));
    this.oldest = oldest;
  }

  /**
   * Returns the oldest retained revision.
   *
   * @return the revision to watch from, after reading the state anew
   */
  public long oldestRevision() {
    return oldest;
  }

  @Override
  public boolean retryable() {
    return false;
  }
}
