package dev.tenure.driver;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.JsonNodeFactory;
import com.fasterxml.jackson.databind.node.ObjectNode;
import dev.tenure.client.Client;
import dev.tenure.client.ClientBuilder;
import dev.tenure.client.ClosedException;
import dev.tenure.client.CompactedException;
import dev.tenure.client.Event;
import dev.tenure.client.Fence;
import dev.tenure.client.Guard;
import dev.tenure.client.HeldLock;
import dev.tenure.client.Key;
import dev.tenure.client.KeyValue;
import dev.tenure.client.Leader;
import dev.tenure.client.LeaderObserver;
import dev.tenure.client.Leadership;
import dev.tenure.client.Lease;
import dev.tenure.client.LockRequest;
import dev.tenure.client.Lost;
import dev.tenure.client.RefusedException;
import dev.tenure.client.Standing;
import dev.tenure.client.TenureException;
import dev.tenure.client.UnavailableException;
import dev.tenure.client.Watch;
import dev.tenure.client.WatchRequest;
import java.io.IOException;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLong;

/** What each command of the protocol does with the library. */
final class Commands {
  private final Driver driver;
  private final Map<String, Client> clients = new ConcurrentHashMap<>();
  private final Map<String, Guard> guards = new ConcurrentHashMap<>();
  private final Map<String, String> handleOf = new ConcurrentHashMap<>();
  private final Map<String, List<Guard>> opened = new ConcurrentHashMap<>();
  private final Map<String, List<Future<?>>> streams = new ConcurrentHashMap<>();
  private final Map<String, Lease> leases = new ConcurrentHashMap<>();
  private final Map<String, Leadership> leaders = new ConcurrentHashMap<>();

  /** When the library call of this thread returned, if it is not now. */
  private final ThreadLocal<Long> at = new ThreadLocal<>();

  Commands(Driver driver) {
    this.driver = driver;
  }

  /** Returns when the library call of this thread returned. */
  long at() {
    Long set = at.get();
    at.remove();
    return set == null ? Clock.micros() : set;
  }

  void perform(JsonNode c, ObjectNode ok) throws Exception {
    at.remove();
    switch (c.path("do").asText()) {
      case "hello" -> {
        ok.put("language", "java").put("version", System.getProperty("java.version"));
        ok.putArray("features").add("plant").add("async").add("thread");
      }
      case "open" -> open(c);
      case "close" -> close(c);
      case "lock" -> lock(c, ok);
      case "check" -> check(guard(c), ok);
      case "await_lost" -> awaitLost(guard(c), ok);
      case "work" -> work(c, ok);
      case "run" -> {
        LockRequest request = options(client(c).request(c.path("lock").asText()), c);
        request.run(guard -> body(c.path("ms").asLong()));
        ok.put("finished", true);
      }
      case "reenter" -> {
        Guard again = guard(c).reenter();
        keep(c, c.path("as").asText(), again);
        ok.put("token", Long.toUnsignedString(again.token()));
      }
      case "release" -> guard(c).release();
      case "upgrade", "downgrade" -> {
        if (c.path("do").asText().equals("downgrade")) {
          guard(c).downgrade();
        } else if (c.has("wait_ms")) {
          guard(c).upgrade(millis(c, "wait_ms"));
        } else {
          guard(c).upgrade();
        }
        ok.put("token", Long.toUnsignedString(guard(c).token()));
      }
      case "hand_on" -> ok.put("token", Long.toUnsignedString(guard(c).handOn(c.path("to").asText())));
      case "progress" -> guard(c).progress(c.path("number").asLong()).ifPresent(it -> ok.put("left_ms", it.toMillis()));
      case "cycles" -> ok.put("cycles", Cycles.run(client(c), c.path("workers").asInt(), millis(c, "ms")));
      case "collect" -> System.gc();
      case "lease_grant" -> {
        Lease lease = client(c).lease(millis(c, "ttl_ms"));
        leases.put(c.path("lease").asText(), lease);
        ok.put("lease", lease.id());
      }
      case "lease_release" -> leases.get(c.path("lease").asText()).release();
      case "campaign" -> {
        Leadership lead = client(c)
            .election(c.path("election").asText())
            .campaign(c.path("value").asText(), request -> options(request, c));
        leaders.put(c.path("leader").asText(), lead);
        keep(c, c.path("leader").asText(), lead.guard());
        ok.put("token", Long.toUnsignedString(lead.token()));
      }
      case "proclaim" -> leader(c).proclaim(c.path("value").asText());
      case "resign" -> leader(c).resign();
      case "observe" -> observe(c);
      case "put" -> put(c, ok);
      case "get" -> client(c).key(c.path("key").asText()).get().ifPresent(it -> {
        ok.put("version", it.version()).put("value", it.text());
      });
      case "delete" -> ok.put("existed", guarded(client(c).key(c.path("key").asText()), c).delete());
      case "watch" -> watch(c);
      case "show" -> Inspection.shown(client(c).show(c.path("lock").asText()), ok);
      case "explain" -> Inspection.explained(client(c).explain(c.path("lock").asText()), ok);
      case "locks" -> Inspection.listed(client(c).locks(c.path("prefix").asText()), ok);
      case "history" -> Inspection.past(client(c), c, ok);
      case "revoke" -> {
        String by = c.path("by").asText(client(c).name());
        if (c.path("now").asBoolean()) {
          client(c).revokeNow(c.path("target").asText(), c.path("reason").asText(), by);
        } else {
          client(c).revoke(c.path("target").asText(), c.path("reason").asText(), by);
        }
      }
      case "force" -> {
        long token = Long.parseUnsignedLong(c.path("token").asText());
        String by = c.path("by").asText(client(c).name());
        if (c.path("now").asBoolean()) {
          client(c).forceNow(c.path("lock").asText(), token, c.path("reason").asText(), by);
        } else {
          client(c).force(c.path("lock").asText(), token, c.path("reason").asText(), by);
        }
      }
      case "resize" -> {
        if (c.has("slots")) {
          client(c).resize(c.path("lock").asText(), c.path("slots").asInt());
        } else {
          client(c).resizeByRequests(c.path("lock").asText());
        }
      }
      case "drain" -> client(c).drain(c.path("prefix").asText(), c.path("reason").asText());
      case "undrain" -> ok.put("existed", client(c).undrain(c.path("prefix").asText()));
      case "drains" -> client(c).drains().stream()
          .filter(it -> it.prefix().equals(c.path("prefix").asText()))
          .forEach(it -> {
            ok.put("reason", it.reason().orElse(null)).put("by", it.by().orElse(null)).put("holders", it.holders());
          });
      case "exit" -> {
        // The process ends after the answer.
      }
      default -> throw new UnsupportedOperationException("this driver has no " + c.path("do"));
    }
  }

  private void open(JsonNode c) throws InterruptedException {
    List<String> addresses = new ArrayList<>();
    c.path("addrs").forEach(it -> addresses.add(it.asText()));
    ClientBuilder builder = Client.builder().addresses(String.join(",", addresses));
    if (c.hasNonNull("name")) {
      builder.name(c.path("name").asText());
    }
    if (c.hasNonNull("api_key")) {
      builder.apiKey(c.path("api_key").asText());
    }
    if (c.hasNonNull("ca_file")) {
      builder.ca(Path.of(c.path("ca_file").asText()));
    }
    if (c.hasNonNull("timeout_ms")) {
      builder.timeout(millis(c, "timeout_ms"));
    }
    clients.put(c.path("handle").asText(), builder.connect());
  }

  /** Closes a client. The protocol has no word for work that goes on: closing also ends the guards of the client. */
  private void close(JsonNode c) throws Exception {
    String handle = c.path("handle").asText();
    List<Guard> open = opened.getOrDefault(handle, List.of());
    open.forEach(Guard::releaseAsync);
    client(c).close(c.has("deadline_ms") ? millis(c, "deadline_ms") : Duration.ofSeconds(10));
    opened.remove(handle);
    // What a stream has to say comes before the answer.
    for (Future<?> stream : streams.getOrDefault(handle, List.of())) {
      stream.get(2, TimeUnit.SECONDS);
    }
    streams.remove(handle);
  }

  private void stream(JsonNode c, Runnable task) {
    String handle = c.path("handle").asText();
    streams.computeIfAbsent(handle, it -> new CopyOnWriteArrayList<>()).add(driver.threads().submit(task));
  }

  private Guard keep(JsonNode c, String name, Guard guard) {
    guards.put(name, guard);
    String handle = c.has("handle") ? c.path("handle").asText() : handleOf.getOrDefault(c.path("guard").asText(), "");
    handleOf.put(name, handle);
    opened.computeIfAbsent(handle, it -> new CopyOnWriteArrayList<>()).add(guard);
    return guard;
  }

  private void lock(JsonNode c, ObjectNode ok) throws InterruptedException {
    List<String> names = new ArrayList<>();
    c.path("locks").forEach(it -> names.add(it.asText()));
    if (c.has("lock")) {
      names.add(c.path("lock").asText());
    }
    String[] locks = names.toArray(new String[0]);
    LockRequest request = options(request(c, locks), c);
    AtomicLong raised = new AtomicLong();
    if (c.has("fence")) {
      request.fence(fence(c.path("fence").asText(), raised));
    }
    Guard guard = request.acquire();
    keep(c, c.path("guard").asText(), guard);
    if (raised.get() != 0) {
      ok.put("raised", Long.toUnsignedString(raised.get()));
    }
    ok.put("lock", guard.name()).put("token", Long.toUnsignedString(guard.token())).put("lease", guard.lease());
    guard.slot().ifPresent(slot -> {
      ok.put("slot", slot);
      ObjectNode taken = ok.putObject("taken");
      guard.locks().forEach(it -> taken.put("" + it.slot().getAsInt(), Long.toUnsignedString(it.token())));
    });
    ObjectNode tokens = ok.putObject("tokens");
    for (HeldLock it : guard.locks()) {
      tokens.put(it.name(), Long.toUnsignedString(it.token()));
    }
  }

  /** A fence that accepts the token, refuses it, or waits until the client no longer does. */
  private static Fence fence(String does, AtomicLong raised) {
    return lock -> {
      if (does.equals("refuses")) {
        throw new IOException("a larger token was seen");
      } else if (does.equals("waits")) {
        try {
          Thread.sleep(3_600_000);
        } catch (InterruptedException told) {
          throw new IOException("the connection was closed", told);
        }
      }
      raised.set(lock.token());
    };
  }

  private LockRequest request(JsonNode c, String[] locks) {
    if (c.has("pool")) {
      return client(c).pool(c.path("pool").asText());
    }
    boolean any = c.path("any").asBoolean();
    if (c.hasNonNull("lease")) {
      Lease lease = leases.get(c.path("lease").asText());
      return any ? lease.requestAny(locks) : lease.request(locks);
    }
    return any ? client(c).requestAny(locks) : client(c).request(locks);
  }

  private static LockRequest options(LockRequest request, JsonNode c) {
    if (c.has("wait_ms")) {
      request.waitAtMost(millis(c, "wait_ms"));
    }
    if (c.has("ttl_ms")) {
      request.ttl(millis(c, "ttl_ms"));
    }
    if (c.path("mode").asText().equals("shared")) {
      request.shared();
    }
    if (c.has("slots")) {
      request.slots(c.path("slots").asInt());
    }
    if (c.has("metadata")) {
      request.metadata(c.path("metadata").asText());
    }
    if (c.has("max_hold_ms")) {
      request.maxHold(millis(c, "max_hold_ms"));
    }
    if (c.has("lock_delay_ms")) {
      request.lockDelay(millis(c, "lock_delay_ms"));
    }
    if (c.has("take")) {
      request.take(c.path("take").asInt());
    }
    if (c.has("priority")) {
      request.priority(c.path("priority").asInt());
    }
    if (c.has("supersede")) {
      request.supersede(c.path("supersede").asText());
    }
    if (c.has("min_hold_ms")) {
      request.minHold(millis(c, "min_hold_ms"));
    }
    if (c.has("progress_within_ms")) {
      request.progressWithin(millis(c, "progress_within_ms"));
    }
    if (c.has("limit_ms")) {
      request.timeout(millis(c, "limit_ms"));
    }
    return request;
  }

  private static void check(Guard guard, ObjectNode ok) {
    guard.check();
    ok.put("state", guard.standing() == Standing.OVERDUE ? "overdue" : "valid");
  }

  private static void awaitLost(Guard guard, ObjectNode ok) throws InterruptedException, ExecutionException {
    Lost lost = guard.ended().get();
    ok.put("cause", lost.cause().word());
    lost.by().ifPresent(by -> ok.put("by", by));
    lost.reason().ifPresent(reason -> ok.put("reason", reason));
  }

  private void work(JsonNode c, ObjectNode ok) throws Exception {
    Guard guard = guard(c);
    long ms = c.path("ms").asLong();
    if (c.path("mode").asText().equals("async")) {
      CompletableFuture<Void> body = new CompletableFuture<>();
      body.completeOnTimeout(null, ms, TimeUnit.MILLISECONDS);
      guard.whileHeld(body).get();
    } else {
      long[] stopped = {0};
      try {
        guard.run(it -> {
          try {
            body(ms);
          } catch (InterruptedException told) {
            linger(c.path("linger_ms").asLong(0));
            throw told;
          } finally {
            stopped[0] = Clock.micros();
          }
        });
      } finally {
        at.set(stopped[0] == 0 ? Clock.micros() : stopped[0]);
      }
    }
    ok.put("finished", true);
  }

  /** Work that stops when it is interrupted. */
  private static void body(long ms) throws InterruptedException {
    Thread.sleep(ms);
  }

  /** Work that goes on after it was told to stop. */
  private static void linger(long ms) {
    long until = System.nanoTime() + ms * 1_000_000;
    while (System.nanoTime() < until) {
      try {
        Thread.sleep(1);
      } catch (InterruptedException again) {
        // It has been told.
      }
    }
  }

  private void observe(JsonNode c) throws InterruptedException {
    String stream = c.path("stream").asText();
    LeaderObserver seen = client(c).election(c.path("election").asText()).observe();
    stream(c, () -> forward(stream, () -> {
      Optional<Leader> leader = seen.next();
      ObjectNode fields = object();
      leader.ifPresentOrElse(it -> fields.put("value", it.text()), () -> fields.putNull("value"));
      driver.event("leader", stream, fields);
    }));
  }

  private void watch(JsonNode c) throws InterruptedException {
    String stream = c.path("stream").asText();
    String name = c.has("key") ? c.path("key").asText() : c.path("lock").asText();
    WatchRequest request = c.path("prefix").asBoolean() ? client(c).watchPrefix(name) : client(c).watch(name);
    if (c.hasNonNull("from_revision")) {
      request.from(Long.parseUnsignedLong(c.path("from_revision").asText()));
    }
    Watch watch;
    try {
      watch = request.start();
    } catch (CompactedException compacted) {
      // The protocol tells this on the stream.
      stream(c, () -> ended(stream, compacted));
      return;
    }
    stream(c, () -> forward(stream, () -> {
      Watch.Batch batch = watch.next();
      for (Event event : batch.events()) {
        ObjectNode fields = object().put("revision", Long.toUnsignedString(batch.revision()));
        fields.put("cause", event.cause()).put("name", event.name());
        event.value().ifPresent(value -> fields.put("value", value));
        event.token().ifPresent(token -> fields.put("token", Long.toUnsignedString(token)));
        driver.event("change", stream, fields);
      }
    }));
  }

  private interface Step {
    void run() throws InterruptedException;
  }

  /** Passes events on until the stream is over. */
  private void forward(String stream, Step step) {
    while (true) {
      try {
        step.run();
      } catch (UnavailableException passing) {
        // The next call goes on where the stream was.
      } catch (TenureException error) {
        ended(stream, error);
        return;
      } catch (InterruptedException stopped) {
        return;
      }
    }
  }

  private void ended(String stream, TenureException error) {
    if (error instanceof ClosedException) {
      // The runner closed the client, and names its next stream the same.
      return;
    }
    if (error instanceof CompactedException it) {
      driver.event("compacted", stream, object().put("oldest", Long.toUnsignedString(it.oldestRevision())));
    }
    driver.event("ended", stream, object().put("reason", error.reason()));
  }

  private void put(JsonNode c, ObjectNode ok) throws InterruptedException {
    String name = c.path("key").asText();
    Key key = guarded(client(c).key(name), c);
    if (c.path("expect_absent").asBoolean()) {
      key.ifAbsent();
    }
    if (c.hasNonNull("expect_version")) {
      long version = c.path("expect_version").asLong();
      KeyValue now = client(c).key(name).get().filter(it -> it.version() == version).orElseThrow(
          () -> new RefusedException("COMPARE_FAILED", "the key is not at version " + version, null));
      key.ifModified(now.modified());
    }
    if (c.hasNonNull("lease")) {
      key.withLease(leases.get(c.path("lease").asText()));
    }
    ok.put("version", key.put(c.path("value").asText()));
  }

  private Key guarded(Key key, JsonNode c) {
    return c.hasNonNull("guard") ? key.guardedBy(guard(c)) : key;
  }

  private Client client(JsonNode c) {
    return clients.get(c.path("handle").asText());
  }

  private Guard guard(JsonNode c) {
    return guards.get(c.path("guard").asText());
  }

  private Leadership leader(JsonNode c) {
    return leaders.get(c.path("leader").asText());
  }

  private static Duration millis(JsonNode c, String field) {
    return Duration.ofMillis(c.path(field).asLong());
  }

  private static ObjectNode object() {
    return JsonNodeFactory.instance.objectNode();
  }
}
