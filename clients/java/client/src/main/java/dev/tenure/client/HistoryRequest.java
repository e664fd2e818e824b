package dev.tenure.client;

import com.fasterxml.jackson.databind.JsonNode;
import dev.tenure.client.internal.AskOptions;
import dev.tenure.client.internal.Core;
import dev.tenure.client.internal.Futures;
import dev.tenure.client.internal.HttpCalls;
import dev.tenure.client.internal.Json;
import dev.tenure.client.internal.Meaning;
import dev.tenure.client.internal.Streams;
import java.time.Instant;
import java.util.ArrayList;
import java.util.Collections;
import java.util.LinkedHashMap;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.stream.Collectors;

/**
 * A search of the past. Nothing is asked until {@link #read} is called.
 *
 * <pre>{@code
 * Past past = client.history("deploy").since(Instant.now().minusSeconds(7_200)).lost().read();
 * }</pre>
 */
public final class HistoryRequest {
  /** The most revisions in one answer of a member. */
  private static final int PAGE = 1_000;

  private final Core core;
  private final String path;
  private final Map<String, String> query = new LinkedHashMap<>();
  private int limit = PAGE;

  HistoryRequest(Core core, String name, boolean prefix) {
    this.core = core;
    if (!prefix || !name.isEmpty()) {
      AskOptions.checkName(name);
    }
    if (!prefix) {
      path = "/v1/locks/" + Streams.path(name);
      query.put("view", "history");
      query.put("archive", "true");
    } else {
      path = "/v1/history";
      if (!name.isEmpty()) {
        query.put("prefix", name);
      }
    }
  }

  /**
   * Only events since this time, by their labels.
   *
   * @param time the time
   * @return this request
   */
  public HistoryRequest since(Instant time) {
    return time("since", time);
  }

  /**
   * Only events until this time, by their labels.
   *
   * @param time the time
   * @return this request
   */
  public HistoryRequest until(Instant time) {
    return time("until", time);
  }

  private HistoryRequest time(String field, Instant time) {
    if (time.isBefore(Instant.EPOCH)) {
      throw new InvalidRequestException("INVALID_FIELD", "`" + field + "` is before 1970");
    }
    query.put(field, Long.toString(time.toEpochMilli()));
    return this;
  }

  /**
   * Only events of clients whose names begin so.
   *
   * @param client the beginning of the names
   * @return this request
   */
  public HistoryRequest ofClient(String client) {
    query.put("client", client);
    return this;
  }

  /**
   * Only ends of holds that the holder did not ask for.
   *
   * @return this request
   */
  public HistoryRequest lost() {
    query.put("lost", "true");
    return this;
  }

  /**
   * Limits how many revisions are read; the newest ones are kept.
   *
   * @param revisions how many; 1,000 unless this is called
   * @return this request
   */
  public HistoryRequest limit(int revisions) {
    if (revisions < 1) {
      throw new InvalidRequestException("INVALID_FIELD", "a history has one revision at least");
    }
    this.limit = revisions;
    return this;
  }

  /**
   * Reads the past, from the cluster and from the archive of the member that answers.
   *
   * @return what is known of it
   * @throws InterruptedException if the thread is interrupted
   */
  public Past read() throws InterruptedException {
    List<Watch.Batch> batches = new ArrayList<>();
    Set<Past.Missing> missing = new LinkedHashSet<>();
    Map<String, String> asked = new LinkedHashMap<>(query);
    Optional<Long> begins = Optional.empty();
    Optional<Instant> beginsAt = Optional.empty();
    while (true) {
      asked.put("limit", Integer.toString(Math.min(limit - batches.size(), PAGE)));
      JsonNode page = Futures.await(HttpCalls.ask(core, path + "?" + text(asked), null), () -> {});
      // A page has the newest revision first.
      for (JsonNode change : page.path("changes")) {
        if (batches.size() < limit) {
          batches.add(Watch.batch(change));
        }
      }
      JsonNode archive = page.path("archive");
      if (archive.isObject()) {
        begins = Json.optional(archive, "begins").map(Long::parseUnsignedLong);
        beginsAt = Json.time(archive, "begins_at");
        archive.path("holes").forEach(hole -> missing.add(
            new Past.Missing(Json.decimal(hole, "from"), Json.decimal(hole, "next"))));
      }
      Optional<String> before = Json.optional(page, "before");
      if (before.isEmpty() || batches.size() == limit) {
        break;
      }
      String last = asked.put("before", before.get());
      if (last != null && Long.compareUnsigned(Long.parseUnsignedLong(before.get()), Long.parseUnsignedLong(last)) >= 0) {
        throw Meaning.strange();
      }
    }
    Collections.reverse(batches);
    return new Past(List.copyOf(batches), begins, beginsAt, List.copyOf(missing));
  }

  private static String text(Map<String, String> query) {
    return query.entrySet().stream()
        .map(it -> it.getKey() + "=" + Streams.query(it.getValue()))
        .collect(Collectors.joining("&"));
  }
}
