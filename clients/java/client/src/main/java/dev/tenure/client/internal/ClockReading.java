package dev.tenure.client.internal;

/**
 * Both clocks of the machine, read together, in microseconds.
 *
 * @param boot the clock that counts while the machine is suspended; this one decides
 * @param awake the clock that stops in suspend; its distance to the other shows how long the machine was suspended
 */
public record ClockReading(long boot, long awake) {
  /** Returns how long the machine has been suspended, as far as it is known. */
  long slept() {
    return Math.max(0, boot - awake);
  }
}
