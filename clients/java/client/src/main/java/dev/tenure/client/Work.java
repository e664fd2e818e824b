package dev.tenure.client;

/**
 * Work under a lock that returns a value.
 *
 * @param <T> what it returns
 * @param <X> what it may throw
 */
@FunctionalInterface
public interface Work<T, X extends Exception> {
  /**
   * Does the work.
   *
   * @param guard the lock it runs under
   * @return the result
   * @throws X if it fails
   */
  T run(Guard guard) throws X;
}
