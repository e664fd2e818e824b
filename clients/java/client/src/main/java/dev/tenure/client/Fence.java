package dev.tenure.client;

/** Raises the fence at a resource, so that it refuses every token that is smaller. See {@link LockRequest#fence}. */
@FunctionalInterface
public interface Fence {
  /**
   * Raises the fence.
   *
   * @param lock the lock that was granted, with its token
   * @throws Exception if the resource has seen a larger token, or cannot be reached
   */
  void raise(HeldLock lock) throws Exception;
}
