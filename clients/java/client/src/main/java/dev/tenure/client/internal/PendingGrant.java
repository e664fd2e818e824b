package dev.tenure.client.internal;

import java.util.Optional;

/** A lease that was requested and is not granted yet. */
public final class PendingGrant {
  private final LeaseTiming timing;
  private long first;
  private boolean sent;

  public PendingGrant(LeaseTiming timing) {
    this.timing = timing;
  }

  /** Records that the request is about to be sent, for the first time or again under the same id. */
  public void sent(ClockReading now) {
    // The answer to a repetition may be the recorded one, so only the first send counts.
    if (!sent) {
      sent = true;
      first = now.boot();
    }
  }

  /** Records the grant. Returns nothing if the answer came too late to rely on the lease, which must be revoked then. */
  public Optional<LeaseState> granted(ClockReading now) {
    long since = sent && !Plant.RENEWAL_FROM_ANSWER.isPlanted() ? first : now.boot();
    if (now.boot() >= since + timing.windowMicros()) {
      return Optional.empty();
    }
    return Optional.of(new LeaseState(timing, since, now));
  }

  /** Returns when the request was sent first. */
  long sentAt(ClockReading now) {
    return sent ? first : now.boot();
  }
}
