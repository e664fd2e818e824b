package dev.tenure.client.internal;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import dev.tenure.client.TenureException;
import java.util.List;
import java.util.concurrent.CompletableFuture;

/**
 * Sends one request until it is answered, or until it is known that no answer will come: over reconnects and changes of
 * leader, under one identity. Runs on the loop.
 */
final class Call {
  /** How long a member may look for a leader before it reports that it knows none. */
  private static final long MEMBER = 9_000_000;

  private static final long PAUSE_MIN = 10_000;
  private static final long PAUSE_MAX = 500_000;
  private static final List<String> QUESTIONS = List.of("get_lease", "get_lock", "get_key", "explain");

  /** The result of an answer, under its name, and the revision that it is based on. */
  record Reply(JsonNode result, long revision) {}

  private final Core core;
  private final ObjectNode command;
  private final String result;
  private final Identity identity;
  private final long began = MachineClock.now();
  private final long until;
  private final String span;
  private final CompletableFuture<Reply> done = new CompletableFuture<>();
  private boolean doubted;
  private TenureException newest;
  private long pause = PAUSE_MIN;
  private int tries;
  private Loop.Timer timer = () -> {};
  private Runnable leaveQueue = () -> {};
  private int attempt;

  private Call(Core core, ObjectNode command, String result, Identity identity, long within) {
    this.core = core;
    this.command = command;
    this.result = result;
    this.identity = identity;
    this.until = began + within;
    this.span = core.loop.span();
  }

  /** Starts a request whose answer has its result in the field of this name. */
  static Call start(Core core, ObjectNode command, String result, Identity identity, long within) {
    Call call = new Call(core, command, result, identity, within);
    core.loop.run(call::send);
    return call;
  }

  static Call start(Core core, ObjectNode command, String result, Identity identity) {
    return start(core, command, result, identity, core.settings.timeoutMicros());
  }

  CompletableFuture<Reply> done() {
    return done;
  }

  /** Returns whether an attempt went unanswered, so that the request may have happened before the one answered. */
  boolean doubted() {
    return doubted;
  }

  private void send() {
    tries++;
    int mine = ++attempt;
    timer = core.loop.after(until - MachineClock.now(), () -> {
      leaveQueue.run();
      giveUp();
    });
    leaveQueue = core.connections.await(false, session -> {
      if (mine != attempt || done.isDone()) {
        return;
      }
      timer.cancel();
      if (session == null) {
        giveUp();
        return;
      }
      long left = until - MachineClock.now();
      ObjectNode request = command.deepCopy();
      identity.write(request);
      Loop.trace(request, span);
      request.put("deadline_ms", Math.max(1, Math.min(left, MEMBER) / 1_000));
      long id = session.ask(request, response -> {
        if (mine == attempt) {
          timer.cancel();
          heard(response);
        }
      });
      if (id == 0) {
        timer = core.loop.after(PAUSE_MIN, this::send);
        tries--;
        return;
      }
      timer = core.loop.after(left, () -> {
        attempt++;
        session.forget(id);
        session.suspect();
        doubted = true;
        giveUp();
      });
    });
  }

  private void heard(Session.Response response) {
    long after = 0;
    if (response instanceof Session.Response.Answer it) {
      if (it.answer().has("error")) {
        Meaning meaning = Meaning.of(it.answer().path("error"));
        if (meaning instanceof Meaning.No no) {
          core.earn();
          fail(no.error());
          return;
        } else if (meaning instanceof Meaning.Again again) {
          after = again.afterMicros();
          newest = again.error();
        } else {
          doubted = true;
        }
      } else if (it.answer().has(result)) {
        core.earn();
        done.complete(new Reply(it.answer().path(result), it.revision()));
        return;
      } else {
        fail(Meaning.strange());
        return;
      }
    } else {
      doubted = true;
    }
    // Every request here may be sent again. The first retry is free, because a change of leader needs it. Further ones
    // draw on the budget.
    long wait = Math.max(MachineClock.jittered(pause), after);
    if (MachineClock.now() + wait >= until || tries > 1 && !core.spend()) {
      giveUp();
      return;
    }
    pause = Math.min(pause * 2, PAUSE_MAX);
    timer = core.loop.after(wait, this::send);
  }

  private void giveUp() {
    attempt++;
    boolean question = QUESTIONS.stream().anyMatch(command::has);
    if (doubted && !question) {
      fail(Meaning.unknown(identity.requestId(), MachineClock.now() - began));
    } else {
      fail(newest != null ? newest : core.connections.noSession());
    }
  }

  private void fail(TenureException error) {
    done.completeExceptionally(error);
  }
}
