package dev.tenure.client;

import com.fasterxml.jackson.databind.JsonNode;
import dev.tenure.client.internal.Json;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Optional;
import java.util.OptionalInt;

/**
 * One position in the queue of a lock, as the cluster shows it.
 *
 * @param client the name of the client that waits
 * @param lease the id of its lease: what {@link Guard#handOn} takes
 * @param mode how it asks for the lock: {@code exclusive}, {@code shared} or {@code slot}
 * @param slots how many slots the request says the semaphore has; nothing for any other lock
 * @param take how many of them it asks for; 1 for any other lock
 * @param ahead how many are before it
 * @param waited how long it has waited
 * @param left how much longer it will wait; nothing for no limit
 * @param created the revision at which it came
 * @param election whether it is a candidacy
 * @param locks every lock of the request
 * @param any whether one of these locks is enough
 * @param pool the prefix of the pool whose slots these locks are
 * @param supersede the group whose next request replaces it
 * @param priority its priority, from 0 to 9
 * @param passable for how much longer new requests with a higher priority may pass it
 */
public record Waiter(
    String client,
    String lease,
    String mode,
    OptionalInt slots,
    int take,
    long ahead,
    Duration waited,
    Optional<Duration> left,
    long created,
    boolean election,
    List<String> locks,
    boolean any,
    Optional<String> pool,
    Optional<String> supersede,
    int priority,
    Duration passable) {
  static Waiter of(JsonNode it) {
    List<String> locks = new ArrayList<>();
    it.path("locks").forEach(lock -> locks.add(lock.asText()));
    return new Waiter(
        Json.string(it, "client"),
        Json.string(it, "lease"),
        Json.string(it, "mode"),
        Json.number(it, "slots"),
        it.path("take").asInt(1),
        it.path("ahead").asLong(),
        Duration.ofMillis(it.path("waiting_ms").asLong()),
        Json.millis(it, "left_ms"),
        Json.decimal(it, "created"),
        it.path("election").asBoolean(),
        List.copyOf(locks),
        it.path("any").asBoolean(),
        Json.optional(it, "pool"),
        Json.optional(it, "supersede"),
        it.path("priority").asInt(),
        Duration.ofMillis(it.path("passable_ms").asLong()));
  }
}
