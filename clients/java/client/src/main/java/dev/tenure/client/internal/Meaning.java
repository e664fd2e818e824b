package dev.tenure.client.internal;

import com.fasterxml.jackson.databind.JsonNode;
import dev.tenure.client.Holder;
import dev.tenure.client.RefusedException;
import dev.tenure.client.TenureException;
import dev.tenure.client.UnknownOutcomeException;
import java.time.Duration;
import java.util.Optional;
import java.util.Set;

/** What an error of the cluster means for the sender of the request. */
public sealed interface Meaning {
  /** The request had no effect and may be sent again; {@code error} is set if the refusal itself says why. */
  record Again(long afterMicros, TenureException error) implements Meaning {}

  /** The request may have taken effect. */
  record Doubt() implements Meaning {}

  /** The request had no effect, and repeating it will not help. */
  record No(TenureException error) implements Meaning {}

  /** Of all reasons that allow a retry, these go away soon and without intervention. */
  Set<String> PASSING = Set.of(
      "NOT_LEADER", "NO_LEADER", "NO_QUORUM", "DEADLINE", "OVERLOADED", "SHUTTING_DOWN", "CORRUPT", "REQUEST_WINDOW",
      "TOO_MANY_HOPS");

  static Meaning of(JsonNode error) {
    if (Json.string(error, "effect").equals("unknown")) {
      return new Doubt();
    }
    String reason = Json.string(error, "reason");
    long after = error.path("retry_after_ms").asLong(0);
    // A quota that is counted by time says when there is room again; others are full until their user frees some.
    boolean fullForNow = reason.equals("QUOTA") && after > 0;
    if (fullForNow || PASSING.contains(reason)) {
      boolean saysWhy = fullForNow || reason.equals("OVERLOADED");
      return new Again(after * 1_000, saysWhy ? refusal(error) : null);
    }
    return new No(refusal(error));
  }

  static RefusedException refusal(JsonNode error) {
    Holder holder = error.has("holder") ? holder(error.path("holder")) : null;
    Duration retryAfter = Duration.ofMillis(error.path("retry_after_ms").asLong(0));
    return new RefusedException(
        Json.string(error, "reason"), Json.string(error, "message"), holder, Json.string(error, "next"), retryAfter);
  }

  static Holder holder(JsonNode it) {
    return new Holder(
        Json.string(it, "client"),
        Json.decimal(it, "token"),
        Duration.ofMillis(it.path("held_ms").asLong()),
        it.path("state").asText("held"),
        Json.millis(it, "left_ms"),
        Json.optional(it, "lease"),
        Json.optional(it, "mode"),
        Json.number(it, "slot"),
        it.path("election").asBoolean(),
        Json.content(it, "metadata"),
        Json.millis(it, "renewed_ms"),
        Json.millis(it, "lock_delay_ms").filter(time -> !time.isZero()),
        Json.millis(it, "min_hold_ms"),
        Json.millis(it, "max_hold_ms"),
        Json.child(it, "progress").map(Meaning::progress));
  }

  private static Holder.Progress progress(JsonNode it) {
    return new Holder.Progress(
        Json.decimal(it, "number"),
        Duration.ofMillis(it.path("within_ms").asLong()),
        Duration.ofMillis(it.path("left_ms").asLong()),
        Duration.ofMillis(it.path("still_ms").asLong()));
  }

  /** The error for an answer that does not fit its request. */
  static TenureException strange() {
    return strange("the member answered something else than was asked");
  }

  static TenureException strange(String message) {
    return new UnknownOutcomeException("STRANGE_ANSWER", message, null);
  }

  static TenureException unknown(String requestId, long waitedMicros) {
    String of = requestId == null ? "" : " of request " + requestId;
    String message = String.format(
        java.util.Locale.ROOT, "no outcome%s within %.1fs; it may have happened", of, waitedMicros / 1e6);
    return new UnknownOutcomeException("UNKNOWN_OUTCOME", message, requestId);
  }
}
