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
 * @param lock the lock; nothing if no client holds or awaits it
 * @param ahead the names of the clients that wait, the first ones
 * @param freeIfSilent when it is free if its holders stop renewing now; nothing if it is free, or that is not known
 */
public record Explanation(Optional<LockInfo> lock, List<String> ahead, Optional<Duration> freeIfSilent) {
  static Explanation of(JsonNode it) {
    List<String> ahead = new ArrayList<>();
    it.path("ahead").forEach(waiter -> ahead.add(Json.string(waiter, "client")));
    Optional<LockInfo> lock = it.path("lock").isObject() ? Optional.of(LockInfo.of(it.path("lock"))) : Optional.empty();
    Optional<Duration> free = it.has("free_if_silent_ms")
        ? Optional.of(Duration.ofMillis(it.path("free_if_silent_ms").asLong()))
        : Optional.empty();
    return new Explanation(lock, List.copyOf(ahead), free);
  }
}
