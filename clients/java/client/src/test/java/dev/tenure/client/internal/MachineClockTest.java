package dev.tenure.client.internal;

import static org.junit.jupiter.api.Assertions.assertEquals;

import org.junit.jupiter.api.Test;

/** The wall clock beside the steady one: its jumps only ever shorten how long a lease is relied on. */
class MachineClockTest {
  private long steady = 5_000_000_000L;
  private long wall = 1_700_000_000_000L;
  private final MachineClock clock = new MachineClock(() -> steady, () -> wall);

  private long elapsed(long steadyMillis, long wallMillis) {
    long before = clock.reading().boot();
    steady += steadyMillis * 1_000_000;
    wall += wallMillis;
    // The wall clock is read in milliseconds.
    return Math.round((clock.reading().boot() - before) / 1_000.0);
  }

  @Test
  void withoutASuspendBothClocksAgree() {
    for (int at = 0; at < 1_000; at++) {
      assertEquals(7, elapsed(7, 7));
    }
    assertEquals(0, clock.reading().slept());
  }

  @Test
  void aSuspendCounts() {
    assertEquals(60_010, elapsed(10, 60_010), 1);
    assertEquals(60_000, clock.reading().slept() / 1_000, 1);
  }

  @Test
  void aWallClockThatIsSetBackChangesNothingAndItsReturnCountsOnce() {
    assertEquals(10, elapsed(10, -3_600_000));
    assertEquals(10, elapsed(10, 10));
    // Set forward again: that cannot be told from a suspend, and ends leases early.
    assertEquals(3_600_010, elapsed(10, 3_600_010), 1);
    assertEquals(10, elapsed(10, 10));
  }

  @Test
  void aClockThatIsAdjustedSlowlyChangesNothing() {
    for (int at = 0; at < 1_000; at++) {
      assertEquals(100, elapsed(100, 100 + at % 2));
    }
  }

  @Test
  void aPauseBetweenTheReadingsIsNoSuspend() {
    long[] pause = {0};
    MachineClock paused = new MachineClock(() -> steady += pause[0], () -> {
      wall += pause[0] / 1_000_000;
      return wall;
    });
    pause[0] = 400_000_000L;
    paused.reading();
    pause[0] = 0;
    // The wall clock was read in the middle of a stall; only what both readings prove may count.
    assertEquals(0, paused.reading().slept() / 1_000_000);
  }
}
