package dev.tenure.client;

import com.fasterxml.jackson.databind.JsonNode;
import dev.tenure.client.internal.Json;
import java.time.Duration;
import java.util.Optional;

/**
 * A prefix that is closed to new grants.
 *
 * @param prefix the prefix; empty if it is that of every lock
 * @param since how long ago it was closed
 * @param by the name that the operator gave who closed it
 * @param principal the authenticated caller that closed it
 * @param reason the reason that was given
 * @param created the revision that closed it
 * @param holders how many holders below it may still be at work
 * @param moreHolders whether there are more holders than were counted
 */
public record Drain(
    String prefix,
    Duration since,
    Optional<String> by,
    Optional<String> principal,
    Optional<String> reason,
    long created,
    long holders,
    boolean moreHolders) {
  static Drain of(JsonNode it) {
    return new Drain(
        Json.string(it, "prefix"),
        Duration.ofMillis(it.path("drained_ms").asLong()),
        Json.optional(it, "by"),
        Json.optional(it, "principal"),
        Json.optional(it, "reason"),
        Json.decimal(it, "created"),
        it.path("holders").asLong(),
        it.path("more_holders").asBoolean());
  }
}
