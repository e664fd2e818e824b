package dev.tenure.client;

/** Leadership: a guard, and the value that other clients see. Closing it resigns. */
public final class Leadership implements AutoCloseable {
  private final Guard guard;

  Leadership(Guard guard) {
    this.guard = guard;
  }

  /**
   * Returns the guard of the leader's lock.
   *
   * @return the guard
   */
  public Guard guard() {
    return guard;
  }

  /**
   * Returns the fencing token of the leader's grant.
   *
   * @return the token
   */
  public long token() {
    return guard.token();
  }

  /**
   * Checks that this client can rely on leading at this moment. Compares the clock, sends nothing.
   *
   * @throws LostException if it cannot
   */
  public void check() {
    guard.check();
  }

  /**
   * Replaces the value that other clients see.
   *
   * @param value the new value
   * @throws InterruptedException if the thread is interrupted; the outcome is not known then
   */
  public void proclaim(String value) throws InterruptedException {
    guard.update(value);
  }

  /**
   * Gives up leadership and waits until the cluster has acknowledged it. The work must have stopped.
   *
   * @throws InterruptedException if the thread is interrupted; it goes on in the background
   */
  public void resign() throws InterruptedException {
    guard.release();
  }

  @Override
  public void close() {
    guard.close();
  }
}
