package dev.tenure.client.internal;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.IOException;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.security.GeneralSecurityException;
import java.util.Optional;
import java.util.concurrent.CompletableFuture;

/** Asks over HTTP for what has no form on a session: lists and tickets. Nothing here changes anything. */
public final class HttpCalls {
  private static final long PAUSE = 20_000;

  private HttpCalls() {}

  /** Reads a path, or posts a body to it if there is one, until a member answers or the time is over. */
  public static CompletableFuture<JsonNode> ask(Core core, String path, ObjectNode body) {
    CompletableFuture<JsonNode> done = core.awaited();
    core.loop.run(() -> attempt(core, path, body, MachineClock.now() + core.settings.timeoutMicros(), done));
    return done;
  }

  private static void attempt(Core core, String path, ObjectNode body, long until, CompletableFuture<JsonNode> done) {
    Loop.Timer limit = core.loop.after(until - MachineClock.now(), () -> {
      done.completeExceptionally(core.connections.noSession());
    });
    core.connections.await(false, session -> {
      if (done.isDone()) {
        return;
      }
      if (session == null) {
        limit.cancel();
        done.completeExceptionally(core.connections.noSession());
        return;
      }
      try {
        HttpRequest.Builder request = core.transport.request(session.address, path);
        if (body != null) {
          request.header("Content-Type", "application/json");
          request.POST(HttpRequest.BodyPublishers.ofString(Json.text(body)));
        }
        core.transport
            .client()
            .sendAsync(request.build(), HttpResponse.BodyHandlers.ofString())
            .whenComplete((response, error) -> core.loop.later(() -> {
              limit.cancel();
              if (done.isDone()) {
                return;
              }
              Optional<JsonNode> read = error == null ? Json.parse(response.body()) : Optional.empty();
              if (read.isPresent() && response.statusCode() == 200) {
                done.complete(read.get());
                return;
              }
              Meaning meaning = read.map(it -> Meaning.of(it.path("error"))).orElse(new Meaning.Doubt());
              if (meaning instanceof Meaning.No no) {
                done.completeExceptionally(no.error());
              } else {
                core.loop.after(PAUSE, () -> attempt(core, path, body, until, done));
              }
            }));
      } catch (IOException | GeneralSecurityException error) {
        limit.cancel();
        done.completeExceptionally(core.connections.noSession());
      }
    });
  }
}
