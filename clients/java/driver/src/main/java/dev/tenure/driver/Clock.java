package dev.tenure.driver;

/** The machine's monotonic clock. On Linux {@link System#nanoTime} is {@code CLOCK_MONOTONIC}, as the protocol wants. */
final class Clock {
  private Clock() {}

  static long micros() {
    return System.nanoTime() / 1_000;
  }
}
