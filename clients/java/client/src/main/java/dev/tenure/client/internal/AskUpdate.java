package dev.tenure.client.internal;

import com.fasterxml.jackson.databind.JsonNode;
import dev.tenure.client.HeldLock;
import dev.tenure.client.RefusedException;
import dev.tenure.client.TenureException;
import java.util.ArrayList;
import java.util.List;
import java.util.OptionalInt;

/** What a message about a lock request means for it. */
sealed interface AskUpdate {
  /** The locks are held; {@code lease} is the new lease, if one was asked for. */
  record Granted(JsonNode lease, List<HeldLock> locks, long revision) implements AskUpdate {}

  /** The request waits in the queue. */
  record Queued(JsonNode lease, long ahead) implements AskUpdate {}

  /** The wait is over without a grant. */
  record Over() implements AskUpdate {}

  record No(TenureException error) implements AskUpdate {}

  /** The outcome is not known, or nothing happened: the request is sent again. */
  record Again(long afterMicros) implements AskUpdate {}

  static AskUpdate of(Session.Response response, AskOptions ask) {
    if (response instanceof Session.Response.Granted it) {
      return granted(ask, it.grant(), Json.decimal(it.grant(), "revision"));
    }
    if (response instanceof Session.Response.WaitEnded it) {
      return waitEnded(it.ended());
    }
    if (!(response instanceof Session.Response.Answer it)) {
      return new Again(0);
    }
    JsonNode answer = it.answer();
    if (answer.has("acquired")) {
      return granted(ask, answer.path("acquired"), it.revision());
    }
    if (answer.has("queued")) {
      JsonNode queued = answer.path("queued");
      return new Queued(queued.path("lease"), queued.path("ahead").asLong());
    }
    if (answer.has("ended")) {
      return new Over();
    }
    if (!answer.has("error")) {
      return new No(Meaning.strange());
    }
    return refused(answer.path("error"));
  }

  /** Reads the end of a wait: replaced by a newer request of its group, refused, or out of time. */
  private static AskUpdate waitEnded(JsonNode ended) {
    if (ended.has("superseded_by")) {
      String by = Json.string(ended, "superseded_by") + ", lease " + Json.string(ended, "superseded_by_lease");
      return new No(new RefusedException("SUPERSEDED", "superseded by a newer request of " + by, null));
    }
    return ended.has("error") ? refused(ended.path("error")) : new Over();
  }

  private static AskUpdate refused(JsonNode error) {
    Meaning meaning = Meaning.of(error);
    if (meaning instanceof Meaning.No no) {
      return new No(no.error());
    }
    return new Again(meaning instanceof Meaning.Again again ? again.afterMicros() : 0);
  }

  private static AskUpdate granted(AskOptions ask, JsonNode it, long revision) {
    List<HeldLock> locks = new ArrayList<>();
    if (it.path("locks").isEmpty()) {
      // A notice names the lock; an answer does not.
      locks.add(lock(it.has("lock") ? Json.string(it, "lock") : ask.locks.get(0), it));
    } else {
      it.path("locks").forEach(each -> locks.add(lock(Json.string(each, "lock"), each)));
    }
    if (locks.stream().anyMatch(each -> each.token() == 0)) {
      return new No(Meaning.strange());
    }
    return new Granted(it.path("lease"), locks, revision);
  }

  private static HeldLock lock(String name, JsonNode it) {
    OptionalInt slot = it.has("slot") ? OptionalInt.of(it.path("slot").asInt()) : OptionalInt.empty();
    return new HeldLock(name, Json.decimal(it, "token"), slot);
  }
}
