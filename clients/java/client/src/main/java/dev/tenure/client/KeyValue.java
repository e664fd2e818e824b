package dev.tenure.client;

import com.fasterxml.jackson.databind.JsonNode;
import dev.tenure.client.internal.Json;
import java.nio.charset.StandardCharsets;

/** The value of a key, and when it was written. */
public final class KeyValue {
  private final byte[] value;
  private final long created;
  private final long modified;
  private final long version;

  private KeyValue(byte[] value, long created, long modified, long version) {
    this.value = value;
    this.created = created;
    this.modified = modified;
    this.version = version;
  }

  static KeyValue of(JsonNode it) {
    byte[] value = Json.bytes(it, "value");
    long version = it.path("version").asLong();
    return new KeyValue(value, Json.decimal(it, "created"), Json.decimal(it, "modified"), version);
  }

  /**
   * Returns the value.
   *
   * @return a copy of its bytes
   */
  public byte[] bytes() {
    return value.clone();
  }

  /**
   * Returns the value as text.
   *
   * @return its bytes read as UTF-8
   */
  public String text() {
    return new String(value, StandardCharsets.UTF_8);
  }

  /**
   * Returns the revision that created the key.
   *
   * @return the revision
   */
  public long created() {
    return created;
  }

  /**
   * Returns the revision that last wrote the key.
   *
   * @return the revision
   */
  public long modified() {
    return modified;
  }

  /**
   * Returns how often the key was written since it was created.
   *
   * @return 1 for the first time
   */
  public long version() {
    return version;
  }
}
