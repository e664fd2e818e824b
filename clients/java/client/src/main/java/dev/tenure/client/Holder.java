package dev.tenure.client;

import java.time.Duration;
import java.util.Optional;
import java.util.OptionalInt;

/**
 * One grant of a lock that is in force, as the cluster shows it. A refusal tells less of it than {@link Client#show}.
 *
 * @param client the name of the client that holds it
 * @param token the fencing token of the grant
 * @param held for how long it is held
 * @param state {@code held}, {@code cooling} while it is revoking, {@code delayed} during a lock-delay, {@code resting}
 *     until its least time is over
 * @param left while it is not held: for how much longer at most
 * @param lease the id of its lease
 * @param mode {@code exclusive}, {@code shared} or {@code slot}; not in refusals
 * @param slot the slot of a semaphore
 * @param election whether it is leadership
 * @param metadata its metadata as text; nothing if there is none
 * @param renewed how long ago its lease was renewed; nothing once the lease has ended, and in refusals
 * @param lockDelay the lock-delay that follows an involuntary end
 * @param minHold the least time from the grant to the next grant
 * @param maxHold how long it may be held at most
 * @param progress the progress that the holder promised
 */
public record Holder(
    String client,
    long token,
    Duration held,
    String state,
    Optional<Duration> left,
    Optional<String> lease,
    Optional<String> mode,
    OptionalInt slot,
    boolean election,
    Optional<String> metadata,
    Optional<Duration> renewed,
    Optional<Duration> lockDelay,
    Optional<Duration> minHold,
    Optional<Duration> maxHold,
    Optional<Progress> progress) {
  /**
   * How far the work under a lock has come, and when it must have come further.
   *
   * @param number the largest number reported; 0 before the first
   * @param within within how much time a larger one must follow
   * @param left in how much time a larger number is due
   * @param still how long ago the number was reported; before the first one, how long ago the lock was granted
   */
  public record Progress(long number, Duration within, Duration left, Duration still) {}
}
