package dev.tenure.client.internal;

import java.util.concurrent.ThreadLocalRandom;
import java.util.concurrent.locks.ReentrantLock;
import java.util.function.LongSupplier;

/**
 * Reads the clock that decides about leases.
 *
 * <p>{@link System#nanoTime} is steady, and on Linux it stops while the machine is suspended. The JDK has no clock that
 * goes on. So the wall clock is watched beside it: if it has moved forward by {@value #JUMP_MIN} microseconds more than
 * the steady clock since the last reading, the difference counts as suspend. A wall clock that is set forward therefore
 * ends leases early; one that is set back, or that runs fast or slow, changes nothing. Not covered: a suspend during
 * which the wall clock stands still too, or is set back by as much before this process reads it again.
 */
public final class MachineClock {
  /** A smaller step of the wall clock is an adjustment, and no suspend. */
  private static final long JUMP_MIN = 50_000;

  private static final MachineClock MACHINE = new MachineClock(System::nanoTime, System::currentTimeMillis);

  private final LongSupplier steadyNanos;
  private final LongSupplier wallMillis;
  private final long origin;
  private final ReentrantLock lock = new ReentrantLock();

  /** The highest distance between the clocks that the last readings prove. */
  private volatile long distance;

  private volatile long slept;

  MachineClock(LongSupplier steadyNanos, LongSupplier wallMillis) {
    this.steadyNanos = steadyNanos;
    this.wallMillis = wallMillis;
    this.origin = steadyNanos.getAsLong() - 1_000_000_000L;
    this.distance = wallMillis.getAsLong() * 1_000 - steady();
  }

  /** Reads the clocks of this machine. Nothing is cached: a check is only as good as its reading. */
  public static ClockReading read() {
    return MACHINE.reading();
  }

  /** Reads only the clock that decides. */
  public static long now() {
    return MACHINE.reading().boot();
  }

  ClockReading reading() {
    long before = steady();
    long wall = wallMillis.getAsLong() * 1_000;
    long after = steady();
    // The true distance lies between these two, whatever happened between the readings.
    long least = wall - after;
    long most = wall + 1_000 - before;
    long napped = slept;
    if (least > distance + JUMP_MIN || most < distance || least > distance) {
      napped = adjust(least, most);
    }
    return new ClockReading(after + napped, after);
  }

  private long adjust(long least, long most) {
    lock.lock();
    try {
      if (least > distance + JUMP_MIN) {
        slept += least - distance;
        distance = least;
      } else if (least > distance) {
        distance = least;
      } else if (most < distance) {
        distance = most;
      }
      return slept;
    } finally {
      lock.unlock();
    }
  }

  private long steady() {
    return (steadyNanos.getAsLong() - origin) / 1_000;
  }

  /** A random time between half of this one and all of it, so that many clients do not retry at the same moment. */
  static long jittered(long micros) {
    long half = micros / 2;
    return half + ThreadLocalRandom.current().nextLong(Math.max(1, half));
  }
}
