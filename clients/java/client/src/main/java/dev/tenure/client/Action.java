package dev.tenure.client;

/**
 * Work under a lock that returns nothing.
 *
 * @param <X> what it may throw
 */
@FunctionalInterface
public interface Action<X extends Exception> {
  /**
   * Does the work.
   *
   * @param guard the lock it runs under
   * @throws X if it fails
   */
  void run(Guard guard) throws X;
}
