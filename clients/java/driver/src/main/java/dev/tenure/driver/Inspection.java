package dev.tenure.driver;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import dev.tenure.client.Client;
import dev.tenure.client.Event;
import dev.tenure.client.Explanation;
import dev.tenure.client.HistoryRequest;
import dev.tenure.client.LockInfo;
import dev.tenure.client.Waiter;
import java.util.List;
import java.util.Optional;
import java.util.stream.Collectors;

/** Writes what locks, their queues and their past show in the words of the protocol. */
final class Inspection {
  private Inspection() {}

  static void shown(Optional<LockInfo> lock, ObjectNode ok) {
    ok.put("waiting", lock.map(LockInfo::waiting).orElse(0));
    lock.flatMap(LockInfo::holder).ifPresent(it -> {
      ok.putObject("holder").put("client", it.client()).put("token", Long.toUnsignedString(it.token()));
    });
  }

  static void explained(Explanation explained, ObjectNode ok) {
    shown(explained.lock(), ok);
    ok.put("ahead", explained.ahead().size());
    if (!explained.ahead().isEmpty()) {
      Waiter first = explained.ahead().get(0);
      ok.putObject("first").put("client", first.client()).put("lease", first.lease()).put("priority", first.priority());
    }
    explained.drained().ifPresent(it -> ok.put("drained", it.reason().orElse("")));
  }

  static void listed(List<LockInfo> locks, ObjectNode ok) {
    ok.put("count", locks.size());
    if (!locks.isEmpty()) {
      ok.put("first", locks.get(0).name()).put("last", locks.get(locks.size() - 1).name());
    }
  }

  static void past(Client client, JsonNode c, ObjectNode ok) throws InterruptedException {
    String name = c.path("lock").asText();
    HistoryRequest request = c.path("prefix").asBoolean() ? client.historyPrefix(name) : client.history(name);
    if (c.path("lost").asBoolean()) {
      request.lost();
    }
    List<Event> events = request.read().batches().stream()
        .flatMap(batch -> batch.events().stream())
        // Whether a request has to queue depends on when the release before it arrives.
        .filter(event -> !event.cause().equals("queued"))
        .toList();
    ok.put("causes", events.stream().map(Event::cause).collect(Collectors.joining(",")));
    if (events.isEmpty()) {
      return;
    }
    Event event = events.get(events.size() - 1);
    ObjectNode last = ok.putObject("last").put("name", event.name());
    event.client().ifPresent(it -> last.put("client", it));
    event.token().ifPresent(it -> last.put("token", Long.toUnsignedString(it)));
    event.by().ifPresent(it -> last.put("by", it));
    event.reason().ifPresent(it -> last.put("reason", it));
  }
}
