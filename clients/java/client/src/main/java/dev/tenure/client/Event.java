package dev.tenure.client;

import com.fasterxml.jackson.databind.JsonNode;
import dev.tenure.client.internal.Json;
import java.nio.charset.StandardCharsets;
import java.time.Instant;
import java.util.Optional;

/** One change of a lock or key. Which fields are there depends on its cause. */
public final class Event {
  private final JsonNode data;

  private Event(JsonNode data) {
    this.data = data;
  }

  static Event of(JsonNode data) {
    return new Event(data);
  }

  /**
   * Returns why the change happened.
   *
   * @return for example {@code granted}, {@code released}, {@code expired}, {@code key_put}
   */
  public String cause() {
    return Json.string(data, "cause");
  }

  /**
   * Returns the name of the lock or key that changed.
   *
   * @return the name; empty if the change is about a lease
   */
  public String name() {
    return data.has("lock") ? Json.string(data, "lock") : Json.string(data, "key");
  }

  /**
   * Returns whether the change is about a lock.
   *
   * @return false for a key or a lease
   */
  public boolean isLock() {
    return data.has("lock");
  }

  /**
   * Returns the client that holds, held or waits.
   *
   * @return its name, if there is one
   */
  public Optional<String> client() {
    return text("client");
  }

  /**
   * Returns the fencing token of the grant.
   *
   * @return the token, if the change is about a grant
   */
  public Optional<Long> token() {
    long token = Json.decimal(data, "token");
    return token == 0 ? Optional.empty() : Optional.of(token);
  }

  /**
   * Returns the new value of a key as text.
   *
   * @return the value, if the change wrote one
   */
  public Optional<String> value() {
    boolean written = data.has("value") || data.has("value_base64");
    return written ? Optional.of(new String(Json.bytes(data, "value"), StandardCharsets.UTF_8)) : Optional.empty();
  }

  /**
   * Returns the value of a key, or the metadata of a lock, that was there before, as text. It is in changes of a watch
   * that asks for it with {@link WatchRequest#withPrevious}.
   *
   * @return the value; nothing if there was none
   */
  public Optional<String> previous() {
    return Json.child(data, "previous").flatMap(it -> Json.content(it, "value"));
  }

  /**
   * Returns when it happened, by the wall clock of the leader of that moment. A label: no decision depends on it.
   *
   * @return the time
   */
  public Optional<Instant> at() {
    return Json.time(data, "at");
  }

  /**
   * Returns the lease that holds, held, waits or owns.
   *
   * @return its id, if there is one
   */
  public Optional<String> lease() {
    return text("lease");
  }

  /**
   * Returns who took a lock away or revoked a lease.
   *
   * @return the name, if another client caused the change
   */
  public Optional<String> by() {
    return text("by");
  }

  /**
   * Returns the reason that was given for it.
   *
   * @return the reason, if another client caused the change
   */
  public Optional<String> reason() {
    return text("reason");
  }

  private Optional<String> text(String field) {
    return data.hasNonNull(field) ? Optional.of(Json.string(data, field)) : Optional.empty();
  }

  /** Returns the change as the cluster told it, in JSON. */
  @Override
  public String toString() {
    return data.toString();
  }
}
