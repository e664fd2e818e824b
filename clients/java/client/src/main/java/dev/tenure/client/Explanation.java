package dev.tenure.client;

import com.fasterxml.jackson.databind.JsonNode;
import dev.tenure.client.internal.Json;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Optional;

/**
 * Why a lock is not free: who has it, who waits, and when it can be free.
 *
 * @param revision the revision that the answer is based on
 * @param lock the lock; nothing if no client holds or awaits it
 * @param ahead those who wait, the first few; for a lease, those before it
 * @param own the position of that lease itself; nothing if it does not wait, or if none was named
 * @param chain which client waits for which, from the lock's first holder on
 * @param chainGoesOn whether the chain goes on beyond what is shown
 * @param freeIfSilent when it is free if its holders stop renewing now; nothing if {@code freeAtLatest} is there, or if it
 *     is not known
 * @param freeAtLatest when it is free whatever its holders do
 * @param usuallyHeld the median of the last holds that the answering member has seen end
 * @param usuallyOf of how many holds that is the median
 * @param grantsAfter how long the cluster grants no locks, because it was restored
 * @param drained the closed prefix that the lock is below, without its holders; while there is one, the lock is not
 *     granted
 * @param reopening for how long the cluster has served the queues again, because a prefix was opened or the quiet time
 *     after a restore is over, if this lock can be granted and its turn is still to come
 */
public record Explanation(
    long revision,
    Optional<LockInfo> lock,
    List<Waiter> ahead,
    Optional<Waiter> own,
    List<ChainStep> chain,
    boolean chainGoesOn,
    Optional<Duration> freeIfSilent,
    Optional<Duration> freeAtLatest,
    Optional<Duration> usuallyHeld,
    int usuallyOf,
    Optional<Duration> grantsAfter,
    Optional<Drain> drained,
    Optional<Duration> reopening) {
  /**
   * One step of a chain of waits: this client has this lock.
   *
   * @param lock the lock
   * @param client the name of the client
   * @param lease the id of its lease
   */
  public record ChainStep(String lock, String client, String lease) {}

  static Explanation of(JsonNode it) {
    List<Waiter> ahead = new ArrayList<>();
    it.path("ahead").forEach(waiter -> ahead.add(Waiter.of(waiter)));
    List<ChainStep> chain = new ArrayList<>();
    it.path("chain").forEach(step -> chain.add(
        new ChainStep(Json.string(step, "lock"), Json.string(step, "client"), Json.string(step, "lease"))));
    return new Explanation(
        Json.decimal(it, "_revision"),
        Json.child(it, "lock").map(LockInfo::of),
        List.copyOf(ahead),
        Json.child(it, "own").map(Waiter::of),
        List.copyOf(chain),
        it.path("chain_goes_on").asBoolean(),
        Json.millis(it, "free_if_silent_ms"),
        Json.millis(it, "free_at_latest_ms"),
        Json.millis(it, "usually_held_ms"),
        it.path("usually_of").asInt(),
        Json.millis(it, "quiet_ms"),
        Json.child(it, "drained").map(Drain::of),
        Json.millis(it, "reopening_ms"));
  }
}
