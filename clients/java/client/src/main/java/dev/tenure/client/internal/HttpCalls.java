package dev.tenure.client.internal;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import dev.tenure.client.TenureException;
import java.io.IOException;
import java.net.http.HttpHeaders;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.security.GeneralSecurityException;
import java.util.Optional;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import java.util.regex.Pattern;

/** Asks over HTTP for what has no form on a session: lists and tickets. Nothing here changes anything. */
public final class HttpCalls {
  private static final long PAUSE_MIN = 20_000;
  private static final long PAUSE_MAX = 1_000_000;

  /** What proxies and load balancers answer until they reach a member again. */
  private static final Set<Integer> PASSING_STATUS = Set.of(429, 502, 503, 504);

  private static final Pattern SECONDS = Pattern.compile("\\d{1,9}");

  private final Core core;
  private final String path;
  private final ObjectNode body;
  private final CompletableFuture<JsonNode> done;
  private final long until;
  private long pause = PAUSE_MIN;

  /** The newest refusal that says why members do not serve, and the newest problem of any kind. */
  private TenureException newest;

  private Throwable problem;

  private HttpCalls(Core core, String path, ObjectNode body, CompletableFuture<JsonNode> done) {
    this.core = core;
    this.path = path;
    this.body = body;
    this.done = done;
    this.until = MachineClock.now() + core.settings.timeoutMicros();
  }

  /** Reads a path, or posts a body to it if there is one, until a member answers or the time is over. */
  public static CompletableFuture<JsonNode> ask(Core core, String path, ObjectNode body) {
    CompletableFuture<JsonNode> done = core.awaited();
    core.loop.run(() -> new HttpCalls(core, path, body, done).attempt());
    return done;
  }

  private void attempt() {
    Loop.Timer limit = core.loop.after(until - MachineClock.now(), this::giveUp);
    core.connections.await(false, session -> {
      if (done.isDone()) {
        return;
      }
      if (session == null) {
        limit.cancel();
        giveUp();
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
              if (error != null) {
                problem = error;
                again(0);
              } else {
                heard(response.statusCode(), response.headers(), response.body());
              }
            }));
      } catch (IOException | GeneralSecurityException error) {
        limit.cancel();
        problem = error;
        giveUp();
      }
    });
  }

  private void heard(int status, HttpHeaders headers, String text) {
    if (status >= 200 && status < 300) {
      Json.parse(text).ifPresentOrElse(done::complete, () -> done.completeExceptionally(Meaning.strange()));
      return;
    }
    Meaning meaning = refusal(status, headers, text);
    if (meaning instanceof Meaning.No no) {
      done.completeExceptionally(no.error());
      return;
    }
    error(text).ifPresent(it -> problem = Meaning.refusal(it));
    long after = 0;
    if (meaning instanceof Meaning.Again again) {
      after = again.afterMicros();
      newest = again.error() == null ? newest : again.error();
    }
    again(after);
  }

  private void again(long after) {
    long wait = Math.max(MachineClock.jittered(pause), after);
    if (MachineClock.now() + wait >= until) {
      giveUp();
      return;
    }
    pause = Math.min(pause * 2, PAUSE_MAX);
    core.loop.after(wait, this::attempt);
  }

  private void giveUp() {
    TenureException error = newest != null ? newest : core.connections.noSession();
    if (newest == null && problem != null && error.getCause() == null) {
      error.initCause(problem);
    }
    done.completeExceptionally(error);
  }

  /** Says what an answer that is not success means for a request that is harmless to repeat. */
  static Meaning refusal(int status, HttpHeaders headers, String body) {
    long asked = headers
        .firstValue("Retry-After")
        // A date, which no member sends, is not read.
        .filter(it -> SECONDS.matcher(it).matches())
        .map(it -> Long.parseLong(it) * 1_000_000)
        .orElse(0L);
    Optional<JsonNode> error = error(body);
    if (error.isEmpty()) {
      boolean passing = PASSING_STATUS.contains(status);
      return passing ? new Meaning.Again(asked, null) : new Meaning.No(Meaning.strange("HTTP " + status));
    }
    Meaning meaning = Meaning.of(error.get());
    if (meaning instanceof Meaning.Again again && again.afterMicros() == 0) {
      return new Meaning.Again(asked, again.error());
    }
    return meaning;
  }

  /** Returns the error of a member in a body, if there is one. */
  private static Optional<JsonNode> error(String body) {
    return Json.parse(body).map(it -> it.path("error")).filter(it -> !Json.string(it, "reason").isEmpty());
  }
}
