package dev.tenure.client;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import dev.tenure.client.internal.AskOptions;
import dev.tenure.client.internal.Core;
import dev.tenure.client.internal.Futures;
import dev.tenure.client.internal.Identity;
import dev.tenure.client.internal.Json;
import java.nio.charset.StandardCharsets;
import java.util.Optional;

/**
 * A request about a key of the cluster's small key-value store. Every object is one request: its repetitions take effect
 * once, so make a new one for every write.
 *
 * <pre>{@code
 * client.key("ledger").guardedBy(guard).put("paid");   // only while the lock is held under this token
 * }</pre>
 */
public final class Key {
  private final Core core;
  private final String name;
  private final ObjectNode expect = Json.object();
  private ObjectNode guard;
  private String lease;
  private Identity identity = Identity.random();

  Key(Core core, String name) {
    this.core = core;
    this.name = name;
  }

  /**
   * Writes only if the key does not exist.
   *
   * @return this request
   */
  public Key ifAbsent() {
    expect.removeAll();
    expect.put("absent", true);
    return this;
  }

  /**
   * Writes only if this revision last wrote the key.
   *
   * @param revision the revision: {@link KeyValue#modified}
   * @return this request
   */
  public Key ifModified(long revision) {
    expect.removeAll();
    expect.put("modified", Json.decimal(revision));
    return this;
  }

  /**
   * Writes only if the key has this value.
   *
   * @param value the text
   * @return this request
   */
  public Key ifValue(String value) {
    expect.removeAll();
    expect.put("value", value);
    return this;
  }

  /**
   * Writes only while the lock is held under the guard's token: the cluster checks it together with the write.
   *
   * @param guard the guard of the lock
   * @return this request
   */
  public Key guardedBy(Guard guard) {
    this.guard = Json.object().put("lock", guard.name()).put("token", Json.decimal(guard.token()));
    return this;
  }

  /**
   * Binds the key to a lease, with which it ends.
   *
   * @param lease the lease
   * @return this request
   */
  public Key withLease(Lease lease) {
    this.lease = lease.id();
    return this;
  }

  /**
   * Repeats a request whose outcome was not known: it takes effect once.
   *
   * @param requestId the id of that request: {@link UnknownOutcomeException#requestId}
   * @return this request
   */
  public Key again(String requestId) {
    this.identity = new Identity.Key(requestId);
    return this;
  }

  /**
   * Reads the key.
   *
   * @return its value; nothing if it does not exist
   * @throws InterruptedException if the thread is interrupted
   */
  public Optional<KeyValue> get() throws InterruptedException {
    AskOptions.checkName(name);
    ObjectNode command = Json.object();
    command.putObject("get_key").put("name", name);
    JsonNode key = Futures.await(core.request(command, "key", Identity.HARMLESS), () -> {}).path("key");
    return key.isObject() ? Optional.of(KeyValue.of(key)) : Optional.empty();
  }

  /**
   * Writes the key.
   *
   * @param value the new value, as text
   * @return how often the key was written since it was created
   * @throws InterruptedException if the thread is interrupted; the outcome is not known then
   */
  public long put(String value) throws InterruptedException {
    return put(value.getBytes(StandardCharsets.UTF_8));
  }

  /**
   * Writes the key.
   *
   * @param value the new value
   * @return how often the key was written since it was created
   * @throws InterruptedException if the thread is interrupted; the outcome is not known then
   */
  public long put(byte[] value) throws InterruptedException {
    ObjectNode put = command();
    Json.putBytes(put, "value", value);
    if (lease != null) {
      put.put("lease", lease);
    }
    return Futures.await(core.request(wrapped("put", put), "put", identity), () -> {}).path("version").asLong();
  }

  /**
   * Deletes the key.
   *
   * @return whether it existed
   * @throws InterruptedException if the thread is interrupted; the outcome is not known then
   */
  public boolean delete() throws InterruptedException {
    ObjectNode delete = command();
    JsonNode deleted = Futures.await(core.request(wrapped("delete", delete), "deleted", identity), () -> {});
    return deleted.path("existed").asBoolean();
  }

  private ObjectNode command() {
    AskOptions.checkName(name);
    ObjectNode command = Json.object().put("key", name);
    if (!expect.isEmpty()) {
      command.set("expect", expect);
    }
    if (guard != null) {
      command.set("guard", guard);
    }
    return command;
  }

  private static ObjectNode wrapped(String word, ObjectNode command) {
    ObjectNode request = Json.object();
    request.set(word, command);
    return request;
  }
}
