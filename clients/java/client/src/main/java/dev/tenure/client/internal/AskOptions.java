package dev.tenure.client.internal;

import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import dev.tenure.client.InvalidRequestException;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.List;
import java.util.function.LongConsumer;

/** All options of a lock request except its lease. */
public final class AskOptions {
  private static final int NAME_BYTES_MAX = 512;
  private static final int PRIORITY_MAX = 9;

  /** How a lock is asked for. */
  public enum Mode {
    EXCLUSIVE,
    SHARED,
    SLOT
  }

  /** Which of its locks a request is for. */
  public enum Choice {
    ALL,
    ANY,
    /** Any slot of the pool whose prefix is the only name. */
    POOL
  }

  /** The locks, or the prefix of a pool. */
  public final List<String> locks;

  public final Choice choice;
  public Mode mode = Mode.EXCLUSIVE;
  public int slots;

  /** How many slots to hold at once; null for one. */
  public Integer take;

  public int priority;

  /** The group whose older requests this one replaces; null for none. */
  public String supersede;

  public Duration minHold;
  public Duration progressWithin;

  /** Whether this turns the shared hold of the lease into an exclusive one. */
  boolean upgrade;

  /** How long to queue: null for no limit, zero for not at all. */
  public Duration wait;

  /** The bound on the whole request; null for none. */
  public Duration timeout;

  public Duration lockDelay;
  public Duration maxHold;
  public byte[] metadata;
  public boolean election;
  public boolean independent;
  public Duration ttl;
  public Duration window;
  public Duration grace;
  public LongConsumer onQueued;

  public AskOptions(List<String> locks) {
    this(Choice.ALL, locks);
  }

  public AskOptions(Choice choice, List<String> locks) {
    this.choice = choice;
    this.locks = List.copyOf(locks);
  }

  boolean isTry() {
    return wait != null && wait.isZero();
  }

  /** Refuses what the cluster would refuse in any case, before anything is sent. */
  public void check() {
    if (locks.isEmpty()) {
      throw new InvalidRequestException("INVALID_FIELD", "no lock is named");
    }
    locks.forEach(AskOptions::checkName);
    if (locks.stream().distinct().count() < locks.size()) {
      throw new InvalidRequestException("DUPLICATE_LOCK", "the same lock twice in one acquire request");
    }
    if (choice == Choice.POOL && mode != Mode.EXCLUSIVE) {
      String message = "a pool goes without `shared` and `slots`: its slots have their own";
      throw new InvalidRequestException("INVALID_FIELD", message);
    }
    if (mode == Mode.SLOT && slots < 1) {
      throw new InvalidRequestException("INVALID_SLOTS", "a semaphore has one slot at least");
    }
    if (take != null && (mode != Mode.SLOT && choice != Choice.POOL || take < 1)) {
      throw new InvalidRequestException("INVALID_FIELD", "`take` is at least 1, and goes with `slots`");
    }
    if (priority < 0 || priority > PRIORITY_MAX) {
      throw new InvalidRequestException("INVALID_FIELD", "a priority is 0 to " + PRIORITY_MAX);
    }
    if (supersede != null) {
      checkName(supersede);
    }
    for (Duration time : new Duration[] {wait, timeout, lockDelay, maxHold, minHold, progressWithin}) {
      if (time != null && time.isNegative()) {
        throw new InvalidRequestException("INVALID_FIELD", "a time cannot be negative");
      }
    }
  }

  /** Refuses a name that no lock or key can have. */
  public static void checkName(String name) {
    boolean control = name.codePoints().anyMatch(Character::isISOControl);
    if (name.isEmpty() || control || name.getBytes(StandardCharsets.UTF_8).length > NAME_BYTES_MAX) {
      String message = "a name has 1 to 512 bytes of UTF-8 without control characters";
      throw new InvalidRequestException("INVALID_NAME", message);
    }
  }

  /** Refuses a text that is no id of a lease. */
  public static void checkLease(String lease) {
    if (!lease.matches("[1-9][0-9]{0,19}")) {
      throw new InvalidRequestException("INVALID_FIELD", "`" + lease + "` is no id of a lease");
    }
  }

  /** Computes the timing of a new lease from the client's settings and these options. */
  LeaseTiming timing(Settings settings) {
    LeaseTiming timing = LeaseTiming.of(ttl != null ? ttl : settings.ttl());
    if (maxHold != null && maxHold.compareTo(timing.ttl()) <= 0) {
      throw new InvalidRequestException("MAX_HOLD_TOO_SHORT", "the maximum hold must exceed the ttl", "max_hold", timing.ttl(), null);
    }
    Duration chosen = window != null ? window : settings.window();
    timing = chosen != null ? timing.withWindow(chosen) : timing;
    return timing.stopWithin(grace != null ? grace : settings.grace());
  }

  /** Builds the command without the lease; {@code waitMicros} is what is left of the wait, negative for no limit. */
  ObjectNode acquire(long waitMicros) {
    ObjectNode acquire = Json.object();
    if (choice == Choice.POOL) {
      acquire.put("pool", locks.get(0));
      if (take != null) {
        acquire.put("take", take);
      }
    } else if (locks.size() == 1) {
      acquire.put("lock", locks.get(0));
      putMode(acquire);
    } else {
      ArrayNode each = acquire.putArray("locks");
      locks.forEach(name -> putMode(each.addObject().put("lock", name)));
      if (choice == Choice.ANY) {
        acquire.put("any", true);
      }
    }
    if (isTry()) {
      acquire.put("wait_ms", 0);
    } else if (waitMicros >= 0) {
      acquire.put("wait_ms", Math.max(1, waitMicros / 1_000));
    }
    if (lockDelay != null) {
      acquire.put("lock_delay_ms", lockDelay.toMillis());
    }
    if (maxHold != null) {
      acquire.put("max_hold_ms", maxHold.toMillis());
    }
    if (minHold != null && !minHold.isZero()) {
      acquire.put("min_hold_ms", minHold.toMillis());
    }
    if (progressWithin != null && !progressWithin.isZero()) {
      acquire.put("progress_within_ms", progressWithin.toMillis());
    }
    if (priority > 0) {
      acquire.put("priority", priority);
    }
    if (supersede != null) {
      acquire.put("supersede", supersede);
    }
    if (upgrade) {
      acquire.put("upgrade", true);
    }
    if (metadata != null) {
      Json.putBytes(acquire, "metadata", metadata);
    }
    if (election) {
      acquire.put("election", true);
    }
    if (independent) {
      acquire.put("independent", true);
    }
    return acquire;
  }

  private void putMode(ObjectNode to) {
    if (mode == Mode.SHARED) {
      to.put("mode", "shared");
    } else if (mode == Mode.SLOT) {
      to.put("mode", "slot").put("slots", slots);
      if (take != null) {
        to.put("take", take);
      }
    }
  }
}
