package dev.tenure.client.internal;

import dev.tenure.client.Cause;
import dev.tenure.client.Lost;
import dev.tenure.client.Standing;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Optional;
import java.util.Set;
import java.util.TreeMap;

/**
 * The state of one granted lease: until when it is surely ours, and when the work under it must stop.
 *
 * <p>No clock and no I/O: clock readings and answers go in; what to send, and until when the lease counts as held, come
 * out. Times are microseconds of the clock that counts in suspend. Time counts from the reading before the first send
 * of the newest acknowledged renewal: the cluster began its ttl at that moment or later. A loss is final.
 *
 * <p>Not safe for threads: {@link HeldLease} guards it.
 */
public final class LeaseState {
  /** A smaller difference between the clocks is not a suspend but the time between their two readings. */
  private static final long SLEEP_MIN = 50_000;

  private final LeaseTiming timing;
  private long since;
  private Lost lost;
  private final List<Attempt> attempts = new ArrayList<>(2);
  private long newest;
  private long nextAttempt;

  /** The revision up to which the client knows of all involuntary losses. */
  private long known;

  /** An acknowledgement that counts only after the holdings were read. */
  private Proof proof;

  private final TreeMap<Long, Grant> grants = new TreeMap<>(Long::compareUnsigned);

  /** When the lease asked to be polled next. */
  private long due;

  private long slept;
  private long late;
  private long napped;

  /** Attempts that were not answered in time while the process was awake. */
  private int failed;

  /** Whether members refused the client's credentials since the newest acknowledged renewal. */
  private boolean refused;

  private record Attempt(long number, long sent) {}

  private record Proof(long sent, long changed) {}

  private static final class Grant {
    final String lock;

    /** A revision at which the lock was surely held. */
    long at;

    Lost lost;
    boolean stopped;
    boolean told;

    Grant(String lock, long at) {
      this.lock = lock;
      this.at = at;
    }
  }

  /** What the caller has to do after an acknowledgement. */
  public enum AckEffect {
    /** Nothing to do. */
    NOTHING,
    /** Read what the lease holds, and pass it to {@link #holdings}. */
    READ_HOLDINGS
  }

  /** What the client tells the cluster once the work under a lock has stopped. */
  public enum EndMessage {
    /** Release the lock. */
    RELEASE,
    /** Confirm that the work under a lock that was taken away has stopped. */
    CONFIRM
  }

  /** A message to the cluster about a lock whose work has stopped. */
  public record Farewell(long token, String lock, EndMessage message) {}

  /** A grant that is lost. */
  public record GrantLoss(long token, String lock, Lost lost, boolean stopped) {}

  LeaseState(LeaseTiming timing, long since, ClockReading now) {
    this.timing = timing;
    this.since = since;
    this.nextAttempt = since + timing.renewMicros();
    this.due = nextAttempt;
    this.slept = now.slept();
  }

  LeaseTiming timing() {
    return timing;
  }

  /** Returns the instant from which the lease counts as lost, unless something newer is acknowledged. */
  public long lostAt() {
    return since + timing.windowMicros();
  }

  /** Returns when to poll the lease next. */
  public long due() {
    long overdue = since + timing.overdueMicros();
    if (due >= overdue) {
      overdue = lostAt();
    }
    return Math.min(nextAttempt, Math.min(overdue, lostAt()));
  }

  /** Checks the clock, and returns whether to send a renewal now. */
  public boolean poll(ClockReading now) {
    long at = now.boot();
    long lateNow = Math.max(0, at - due);
    if (lateNow > timing.retryMicros()) {
      late = Math.max(late, lateNow);
    }
    long sleptNow = Math.max(0, now.slept() - slept);
    slept = now.slept();
    if (sleptNow > SLEEP_MIN) {
      napped += sleptNow;
    }
    expire(at);
    long retry = timing.retryMicros();
    int overdue = 0;
    for (Attempt attempt : attempts) {
      if (attempt.sent + retry <= at) {
        overdue++;
      }
    }
    if (lateNow <= timing.retryMicros() && sleptNow <= SLEEP_MIN) {
      failed = Math.max(failed, overdue);
    }
    due = at;
    boolean renew = lost == null && at >= nextAttempt;
    due = renew ? at + retry : Math.max(due(), at);
    return renew;
  }

  /** Returns whether a renewal is due, or will be soon: leases that are renewed together stay together. */
  public boolean isSoon(ClockReading now) {
    return lost == null && now.boot() + timing.renewMicros() / 4 >= nextAttempt;
  }

  /** Returns whether a renewal is still unanswered, or has failed. */
  public boolean isRetrying() {
    return lost == null && (failed > 0 || !attempts.isEmpty());
  }

  /** Records that a renewal is about to be sent, and returns its number, which comes back with the answer. */
  public long renewing(ClockReading now) {
    long sent = now.boot();
    // A renewal that was sent a window ago proves nothing any more.
    attempts.removeIf(it -> it.sent + timing.windowMicros() <= sent);
    newest++;
    attempts.add(new Attempt(newest, sent));
    nextAttempt = sent + timing.retryMicros();
    return newest;
  }

  /** Records an acknowledged renewal: the lease has its ttl again, or no longer exists if {@code ttl} is 0. */
  public AckEffect renewed(long number, long ttl, long changed, ClockReading now) {
    long at = now.boot();
    expire(at);
    Attempt found = null;
    for (Attempt attempt : attempts) {
      if (attempt.number == number) {
        found = attempt;
      }
    }
    if (found == null) {
      return AckEffect.NOTHING;
    }
    attempts.remove(found);
    long sent = Plant.RENEWAL_FROM_ANSWER.isPlanted() ? at : found.sent;
    if (lost != null) {
      if (Plant.LOSS_NOT_FINAL.isPlanted()) {
        lost = null;
        acknowledged(sent);
      }
      return AckEffect.NOTHING;
    }
    if (ttl == 0) {
      // The lease cannot have expired by our own clock yet: it was ended, and the client was not told.
      lose(Lost.of(Cause.GONE));
      return AckEffect.NOTHING;
    }
    if (Long.compareUnsigned(changed, known) > 0) {
      proof = new Proof(proof == null ? sent : Math.max(proof.sent, sent), changed);
      return AckEffect.READ_HOLDINGS;
    }
    acknowledged(sent);
    return AckEffect.NOTHING;
  }

  /** Records that a renewal failed or was not answered in time. */
  public void notRenewed(long number) {
    attempts.removeIf(it -> it.number == number);
    failed++;
  }

  /** Records what the lease held at a revision; {@code changed} is the newest loss up to then. */
  public void holdings(long revision, long changed, Set<Long> holds, ClockReading now) {
    expire(now.boot());
    grants.forEach((token, grant) -> {
      // A lock that was granted after the reading is rightly missing in it.
      boolean read = Long.compareUnsigned(grant.at, revision) <= 0;
      if (read && !holds.contains(token) && grant.lost == null) {
        grant.lost = Lost.of(Cause.GONE);
      }
    });
    if (Long.compareUnsigned(changed, known) > 0) {
      known = changed;
    }
    if (proof != null && Long.compareUnsigned(proof.changed, known) <= 0) {
      long sent = proof.sent;
      proof = null;
      if (lost == null) {
        acknowledged(sent);
      }
    }
  }

  /** Records that the lease has ended or is unknown. */
  public void ended(Lost why, ClockReading now) {
    // If renewals stopped for local reasons, the local clock knows the cause better than the cluster.
    expire(now.boot());
    lose(why);
  }

  /** Records a granted lock. Returns the loss if the lease cannot be relied on now: then there is no guard. */
  public Optional<Lost> granted(String lock, long token, long at, ClockReading now) {
    Optional<Lost> checked = check(now);
    if (checked.isPresent()) {
      return checked;
    }
    // A member that was behind may report a grant after the lease has lost something newer, perhaps this very grant.
    if (Long.compareUnsigned(at, known) < 0) {
      return Optional.of(Lost.of(Cause.GONE));
    }
    grants.put(token, new Grant(lock, at));
    return Optional.empty();
  }

  /** Moves a held lock to another token. */
  public void regranted(long old, long token, long at) {
    Grant grant = grants.remove(old);
    if (grant != null) {
      grant.at = at;
      grants.put(token, grant);
    }
  }

  /** Records the loss of a lock that this client did not release. */
  public void taken(long token, Lost why) {
    Grant grant = grants.get(token);
    if (grant != null && grant.lost == null) {
      grant.lost = why;
    }
  }

  /** Lets the lease end if its time is over, and returns whether it has ended: what a timer does. */
  boolean look(ClockReading now) {
    expire(now.boot());
    return lost != null;
  }

  /** Returns why the lease cannot be relied on at this moment; nothing if it can. */
  public Optional<Lost> check(ClockReading now) {
    if (!Plant.CHECK_BY_TIMER.isPlanted()) {
      expire(now.boot());
    }
    return Optional.ofNullable(lost);
  }

  /** Returns why a lock cannot be relied on at this moment; nothing if it can. */
  public Optional<Lost> checkGrant(long token, ClockReading now) {
    Optional<Lost> checked = check(now);
    if (checked.isPresent()) {
      return checked;
    }
    Grant grant = grants.get(token);
    return grant == null ? Optional.of(Lost.of(Cause.RELEASED)) : Optional.ofNullable(grant.lost);
  }

  /** Returns the standing at this moment. */
  public Standing standing(ClockReading now) {
    if (check(now).isPresent()) {
      return Standing.LOST;
    }
    return now.boot() >= since + timing.overdueMicros() ? Standing.OVERDUE : Standing.VALID;
  }

  /** Returns the loss of the lease itself, if it is lost. */
  public Optional<Lost> loss() {
    return Optional.ofNullable(lost);
  }

  /** Returns the lost locks with their causes. */
  public List<GrantLoss> losses() {
    List<GrantLoss> losses = new ArrayList<>(0);
    grants.forEach((token, grant) -> {
      Lost why = grant.lost != null ? grant.lost : lost;
      if (why != null) {
        losses.add(new GrantLoss(token, grant.lock, why, grant.stopped));
      }
    });
    return losses;
  }

  /** Returns the tokens of all grants, lost or not, that were not given back. */
  Set<Long> tokens() {
    return Set.copyOf(grants.keySet());
  }

  /** Returns the names of the locks whose work has not stopped. */
  public List<String> inUse() {
    return grants.values().stream().filter(it -> !it.stopped).map(it -> it.lock).toList();
  }

  /** Records that the work under a lock has stopped, so that the cluster may be told. */
  public void stopped(long token) {
    Grant grant = grants.get(token);
    if (grant != null) {
      grant.stopped = true;
    }
  }

  /**
   * Removes a lock whose work has stopped while it could be relied on, and returns its name for the release. Returns
   * nothing if the lock was lost.
   */
  public Optional<String> givenBack(long token, ClockReading now) {
    if (checkGrant(token, now).isPresent()) {
      return Optional.empty();
    }
    return Optional.of(grants.remove(token).lock);
  }

  /** Returns what to tell the cluster now, each item once. A lock is never released before its work has stopped. */
  public List<Farewell> farewells() {
    boolean early = Plant.RELEASE_WHILE_WORKING.isPlanted();
    List<Farewell> farewells = new ArrayList<>(1);
    grants.forEach((token, grant) -> {
      boolean over = grant.stopped || early && (grant.lost != null || lost != null);
      if (!grant.told && over) {
        grant.told = true;
        EndMessage message = grant.lost != null ? EndMessage.CONFIRM : EndMessage.RELEASE;
        farewells.add(new Farewell(token, grant.lock, message));
      }
    });
    grants.values().removeIf(it -> it.told && it.stopped);
    return farewells;
  }

  /** Returns whether no work runs under the lease, so that it may be revoked. */
  public boolean isIdle() {
    return grants.values().stream().allMatch(it -> it.stopped);
  }

  /** Ends the lease if no work runs under it, and returns whether it has ended: from then on nothing is granted. */
  public boolean endIfIdle() {
    boolean idle = isIdle();
    if (idle) {
      lose(Lost.of(Cause.RELEASED));
    }
    return idle;
  }

  /** Members refuse the credentials: that is the cause if no renewal is acknowledged before the deadline. */
  public void credentialsRefused() {
    refused = true;
  }

  private void acknowledged(long sent) {
    since = Math.max(since, sent);
    // Renewals that were sent before this one prove nothing more.
    attempts.removeIf(it -> it.sent <= since);
    nextAttempt = since + timing.renewMicros();
    refused = false;
    failed = 0;
    late = 0;
    napped = 0;
    due = Math.min(due, due());
  }

  private void expire(long at) {
    if (lost != null || at < lostAt()) {
      return;
    }
    long lateness = Math.max(late, Math.max(0, at - due));
    long silent = Math.max(0, at - since);
    if (refused) {
      lose(after(Cause.CREDENTIALS_REFUSED, silent));
    } else if (failed > 0) {
      lose(after(Cause.CLUSTER_UNREACHABLE, silent));
    } else if (napped > SLEEP_MIN) {
      lose(after(Cause.SUSPENDED, napped));
    } else if (lateness > timing.retryMicros()) {
      lose(after(Cause.LOCAL_STALL, lateness));
    } else {
      lose(after(Cause.CLUSTER_UNREACHABLE, silent));
    }
  }

  private void lose(Lost why) {
    if (lost == null) {
      lost = why;
      if (!Plant.LOSS_NOT_FINAL.isPlanted()) {
        attempts.clear();
      }
    }
  }

  private static Lost after(Cause cause, long micros) {
    return Lost.after(cause, Duration.ofNanos(micros * 1_000));
  }
}
