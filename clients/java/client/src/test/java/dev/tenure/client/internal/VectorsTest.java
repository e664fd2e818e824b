package dev.tenure.client.internal;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNotEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import dev.tenure.client.Cause;
import dev.tenure.client.InvalidRequestException;
import dev.tenure.client.Lost;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;
import java.util.Locale;
import java.util.Optional;
import java.util.Set;
import java.util.stream.Stream;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.EnumSource;

/** Replays the traces of the Rust client: the lease state must return exactly the same at every step. */
class VectorsTest {
  private static final ObjectMapper MAPPER = new ObjectMapper();

  @AfterEach
  void withoutPlant() {
    Plant.select(null);
  }

  @Test
  void everyTraceIsReplayedExactly() throws IOException {
    // `cargo xtask clients --planted` sets it, and expects that this fails.
    Plant.select(System.getenv("TENURE_PLANT"));
    List<String> failed = new ArrayList<>();
    int traces = 0;
    for (JsonNode trace : traces()) {
      traces++;
      play(trace).ifPresent(failed::add);
    }
    System.out.println("vectors traces=" + traces + " failed=" + failed.size());
    assertEquals(List.of(), failed.subList(0, Math.min(5, failed.size())));
    assertTrue(traces >= 500, "there are at least 500 traces, and " + traces + " were found");
  }

  /** The other two bugs are not in the lease state alone: scenarios catch them. */
  @ParameterizedTest
  @EnumSource(names = {"RENEWAL_FROM_ANSWER", "LOSS_NOT_FINAL", "RELEASE_WHILE_WORKING", "CHECK_BY_TIMER"})
  void aPlantedBugChangesATrace(Plant plant) throws IOException {
    Plant.select(plant.name().toLowerCase(Locale.ROOT));
    int failed = 0;
    for (JsonNode trace : traces()) {
      failed += play(trace).isPresent() ? 1 : 0;
    }
    assertNotEquals(0, failed, plant + " must be caught");
  }

  private static List<JsonNode> traces() throws IOException {
    String given = System.getenv("TENURE_VECTORS");
    Path directory = given == null ? Path.of("../../vectors") : Path.of(given);
    List<JsonNode> traces = new ArrayList<>();
    try (Stream<Path> files = Files.list(directory)) {
      for (Path file : files.filter(it -> it.toString().endsWith(".jsonl")).sorted().toList()) {
        for (String line : Files.readAllLines(file)) {
          traces.add(MAPPER.readTree(line));
        }
      }
    }
    return traces;
  }

  private static Optional<String> play(JsonNode trace) {
    LeaseTiming timing;
    try {
      timing = LeaseTiming.of(micros(trace.path("ttl").asLong()));
      if (trace.has("window")) {
        timing = timing.withWindow(micros(trace.path("window").asLong()));
      }
      if (trace.has("grace")) {
        timing = timing.stopWithin(micros(trace.path("grace").asLong()));
      }
    } catch (InvalidRequestException refused) {
      return compareRefusal(trace, refused);
    }
    if (trace.has("refused")) {
      return Optional.of(trace.path("name").asText() + ": was not refused");
    }
    ObjectNode times = MAPPER.createObjectNode();
    times.put("window", timing.windowMicros());
    times.put("renew_after", timing.renewMicros());
    times.put("retry", timing.retryMicros());
    times.put("overdue_after", timing.overdueMicros());
    times.put("surely_lives", timing.surelyLivesMicros());
    Optional<String> wrong = compare(trace, trace.path("times"), trace.path("times"), times);
    Player player = new Player(timing);
    for (JsonNode step : trace.path("steps")) {
      if (wrong.isPresent()) {
        return wrong;
      }
      wrong = compare(trace, step, step.path("out"), player.step(step));
    }
    return wrong;
  }

  private static Optional<String> compareRefusal(JsonNode trace, InvalidRequestException refused) {
    ObjectNode found = MAPPER.createObjectNode();
    refused.field().ifPresent(it -> found.put("refused", it));
    refused.least().ifPresent(it -> found.put("least", it.toNanos() / 1_000));
    refused.most().ifPresent(it -> found.put("most", it.toNanos() / 1_000));
    ObjectNode expected = MAPPER.createObjectNode();
    for (String field : List.of("refused", "least", "most")) {
      if (trace.has(field)) {
        expected.set(field, trace.path(field));
      }
    }
    return compare(trace, trace, expected, found);
  }

  private static Optional<String> compare(JsonNode trace, JsonNode step, JsonNode expected, JsonNode found) {
    // Compare as text read anew, so that an int and a long of the same value are equal.
    boolean same = expected.toString().length() == found.toString().length() && read(expected).equals(read(found));
    return same ? Optional.empty() : Optional.of(trace.path("name").asText() + "\n  " + step + "\n  found " + found);
  }

  private static JsonNode read(JsonNode node) {
    try {
      return MAPPER.readTree(node.toString());
    } catch (IOException error) {
      throw new IllegalStateException(error);
    }
  }

  private static Duration micros(long micros) {
    return Duration.ofNanos(micros * 1_000);
  }

  /** One lease, from its request on. */
  private static final class Player {
    private final PendingGrant pending;
    private LeaseState lease;

    Player(LeaseTiming timing) {
      pending = new PendingGrant(timing);
    }

    ObjectNode step(JsonNode step) {
      long at = step.path("at").asLong();
      ClockReading now = new ClockReading(at, at - step.path("slept").asLong(0));
      long token = Json.decimal(step, "token");
      ObjectNode out = MAPPER.createObjectNode();
      switch (step.path("do").asText()) {
        case "send_grant" -> pending.sent(now);
        case "granted" -> pending.granted(now).ifPresentOrElse(
            granted -> lease = granted, () -> out.put("too_late", at - pending.sentAt(now)));
        case "poll" -> out.put("renew", lease.poll(now));
        case "renewing" -> out.put("number", lease.renewing(now));
        case "renewed" -> {
          long ttl = step.path("ttl").asLong();
          LeaseState.AckEffect effect =
              lease.renewed(step.path("number").asLong(), ttl, Json.decimal(step, "changed"), now);
          out.put("read_holdings", effect == LeaseState.AckEffect.READ_HOLDINGS);
        }
        case "not_renewed" -> lease.notRenewed(step.path("number").asLong());
        case "holdings" -> {
          Set<Long> holds = new HashSet<>();
          step.path("holds").forEach(it -> holds.add(Long.parseUnsignedLong(it.asText())));
          lease.holdings(Json.decimal(step, "revision"), Json.decimal(step, "changed"), holds, now);
        }
        case "ended" -> lease.ended(Lost.of(cause(step)), now);
        case "lock_granted" -> {
          String lock = step.path("lock").asText();
          Optional<Lost> lost = lease.granted(lock, token, Json.decimal(step, "revision"), now);
          out.put("held", lost.isEmpty());
          lost.ifPresent(it -> out.put("because", it.cause().word()));
        }
        case "taken" -> lease.taken(token, Lost.of(cause(step)));
        case "check" -> out.put("ok", lease.check(now).isEmpty());
        case "check_lock" -> {
          Optional<Lost> lost = lease.checkGrant(token, now);
          out.put("ok", lost.isEmpty());
          lost.ifPresent(it -> out.put("because", it.cause().word()));
        }
        case "stopped" -> lease.stopped(token);
        case "farewells" -> {
          ArrayNode farewells = out.putArray("farewells");
          for (LeaseState.Farewell it : lease.farewells()) {
            String say = it.message() == LeaseState.EndMessage.CONFIRM ? "stopped" : "release";
            farewells.addObject().put("say", say).put("lock", it.lock()).put("token", Json.decimal(it.token()));
          }
        }
        case "give_back" -> out.put("release", lease.givenBack(token, now).orElse(null));
        case "end_if_idle" -> out.put("ended", lease.endIfIdle());
        case "credentials_refused" -> lease.credentialsRefused();
        default -> throw new IllegalArgumentException("an unknown step: " + step);
      }
      if (lease != null) {
        state(out, now);
      }
      return out;
    }

    private void state(ObjectNode out, ClockReading now) {
      out.put("state", lease.standing(now).name().toLowerCase(Locale.ROOT));
      Optional<Lost> lost = lease.loss();
      if (lost.isPresent()) {
        out.put("cause", lost.get().cause().word());
        lost.get().time().ifPresent(time -> out.put(measure(lost.get().cause()), time.toNanos() / 1_000));
      } else {
        out.put("due", lease.due()).put("lost_at", lease.lostAt());
      }
      ObjectNode locks = MAPPER.createObjectNode();
      lease.tokens().forEach(token -> locks.put(Json.decimal(token), "held"));
      lease.losses().forEach(it -> locks.put(Json.decimal(it.token()), it.lost().cause().word()));
      if (!locks.isEmpty()) {
        out.set("locks", locks);
      }
    }

    private static String measure(Cause cause) {
      return switch (cause) {
        case LOCAL_STALL -> "late";
        case SUSPENDED -> "suspended";
        default -> "silent";
      };
    }

    private static Cause cause(JsonNode step) {
      String word = step.path("cause").asText();
      for (Cause cause : Cause.values()) {
        if (cause.word().equals(word)) {
          return cause;
        }
      }
      throw new IllegalArgumentException("an unknown cause: " + word);
    }
  }
}
