package dev.tenure.client.internal;

import com.fasterxml.jackson.databind.JsonNode;
import dev.tenure.client.ClosedException;
import dev.tenure.client.TenureException;
import java.io.IOException;
import java.lang.System.Logger;
import java.lang.System.Logger.Level;
import java.net.http.HttpResponse;
import java.nio.charset.StandardCharsets;
import java.security.GeneralSecurityException;
import java.util.Optional;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.Flow;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;

/**
 * A stream of server-sent events that goes on over reconnects: one of another member follows one that broke. Its source
 * says where to begin anew. Runs on the loop, but for the reading of the consumer.
 */
public final class EventStream<T> implements AutoCloseable {
  private static final Logger LOG = System.getLogger("dev.tenure.client");
  private static final long PAUSE_MIN = 20_000;
  private static final long PAUSE_MAX = 1_000_000;

  /** Members send something every ten seconds. */
  private static final long SILENT_MAX = 15_000_000;

  private static final long LOOK = 500_000;

  /** How many events wait for the consumer before no more are read. */
  private static final int UNREAD_MAX = 1_024;

  /** Where the stream begins, and what its events mean. Runs on the loop. */
  public interface Source<T> {
    /** Returns the path and query that continue the stream. */
    String path();

    /** Reads an event. Returns what the consumer gets, if anything; throws what ends the stream. */
    Optional<T> read(String event, JsonNode data);
  }

  private sealed interface Item<T> {
    record Value<T>(T value) implements Item<T> {}

    record Failure<T>(TenureException error, boolean isLast) implements Item<T> {}
  }

  private final Core core;
  private final Source<T> source;
  private final LinkedBlockingQueue<Item<T>> items = new LinkedBlockingQueue<>();
  private final CompletableFuture<Void> started = new CompletableFuture<>();
  private final Runnable unlisten;
  private volatile boolean over;
  private Reader reader;
  private Session session;
  private int attempt;
  private long pause = PAUSE_MIN;
  private long brokenSince = MachineClock.now();
  private long newest;
  private boolean reported;
  private Loop.Timer timer = () -> {};
  private Loop.Timer look = () -> {};

  private EventStream(Core core, Source<T> source) {
    this.core = core;
    this.source = source;
    this.unlisten = core.onClosing(() -> end(new ClosedException()));
  }

  /** Starts a stream, and completes with it once the first event has come. */
  public static <T> CompletableFuture<EventStream<T>> start(Core core, Source<T> source) {
    CompletableFuture<EventStream<T>> done = core.awaited();
    core.loop.run(() -> {
      EventStream<T> stream = new EventStream<>(core, source);
      stream.started.whenComplete((nothing, error) -> Futures.pass(stream, error, done));
      if (core.isClosing()) {
        stream.end(new ClosedException());
      } else {
        stream.connect();
      }
    });
    return done;
  }

  /** Returns the next event; nothing when the time is over. Throws what went wrong; after that it may go on. */
  public Optional<T> next(long timeoutMicros) throws InterruptedException {
    Item<T> item = timeoutMicros < 0 ? items.take() : items.poll(timeoutMicros, TimeUnit.MICROSECONDS);
    if (item == null) {
      return Optional.empty();
    }
    if (item instanceof Item.Failure<T> failure) {
      if (failure.isLast) {
        items.add(item);
      }
      throw Futures.rethrown(failure.error);
    }
    if (items.size() < UNREAD_MAX / 2) {
      core.loop.run(this::readOn);
    }
    return Optional.of(((Item.Value<T>) item).value);
  }

  @Override
  public void close() {
    core.loop.run(() -> end(new ClosedException()));
  }

  private void end(TenureException why) {
    if (over) {
      return;
    }
    over = true;
    unlisten.run();
    disconnect();
    timer.cancel();
    started.completeExceptionally(why);
    items.add(new Item.Failure<>(why, true));
  }

  private void disconnect() {
    attempt++;
    look.cancel();
    if (reader != null) {
      reader.cancel();
      reader = null;
    }
  }

  private void connect() {
    if (over) {
      return;
    }
    int mine = ++attempt;
    timer = core.loop.after(Math.max(0, brokenSince + core.settings.timeoutMicros() - MachineClock.now()), this::late);
    core.connections.await(false, on -> {
      if (over || mine != attempt) {
        return;
      }
      if (on == null) {
        end(core.connections.noSession());
        return;
      }
      session = on;
      try {
        var request = core.transport.request(on.address, source.path()).header("Accept", "text/event-stream").build();
        core.transport
            .client()
            .sendAsync(request, info -> body(info, mine))
            .whenComplete((response, error) -> core.loop.later(() -> {
              if (over || mine != attempt) {
                return;
              }
              if (error != null) {
                broken();
              } else if (response.statusCode() != 200) {
                refused(response);
              } else {
                // The body has ended.
                broken();
              }
            }));
        newest = MachineClock.now();
        look = core.loop.after(LOOK, () -> look(mine));
      } catch (IOException | GeneralSecurityException error) {
        LOG.log(Level.DEBUG, "cannot start a stream", error);
        broken();
      }
    });
  }

  private HttpResponse.BodySubscriber<String> body(HttpResponse.ResponseInfo info, int mine) {
    return info.statusCode() == 200
        ? HttpResponse.BodySubscribers.fromLineSubscriber(new Reader(mine), it -> "", StandardCharsets.UTF_8, null)
        : HttpResponse.BodySubscribers.ofString(StandardCharsets.UTF_8);
  }

  private void look(int mine) {
    if (over || mine != attempt) {
      return;
    }
    if (session.isOver() || MachineClock.now() - newest >= SILENT_MAX) {
      broken();
      return;
    }
    look = core.loop.after(LOOK, () -> look(mine));
  }

  private void late() {
    if (!over && !reported) {
      reported = true;
      TenureException why = core.connections.noSession();
      if (started.isDone()) {
        items.add(new Item.Failure<>(why, false));
      } else {
        end(why);
      }
    }
  }

  private void broken() {
    broken(0);
  }

  /** Opens the stream again, after this time at the earliest. */
  private void broken(long after) {
    disconnect();
    timer.cancel();
    if (MachineClock.now() - brokenSince >= core.settings.timeoutMicros()) {
      late();
    }
    long wait = Math.max(MachineClock.jittered(pause), after);
    long left = brokenSince + core.settings.timeoutMicros() - MachineClock.now();
    if (left < wait) {
      // The consumer learns in time that there is no stream.
      core.loop.after(Math.max(0, left), this::late);
    }
    pause = Math.min(pause * 2, PAUSE_MAX);
    timer = core.loop.after(wait, this::connect);
  }

  private void refused(HttpResponse<String> response) {
    Meaning meaning = HttpCalls.refusal(response.statusCode(), response.headers(), response.body());
    if (meaning instanceof Meaning.No no) {
      Optional<JsonNode> error = Json.parse(response.body()).map(it -> it.path("error"));
      end(error.flatMap(Streams::compacted).orElse(no.error()));
    } else {
      broken(meaning instanceof Meaning.Again again ? again.afterMicros() : 0);
    }
  }

  private void heard(int mine, String event, String data) {
    if (over || mine != attempt) {
      return;
    }
    newest = MachineClock.now();
    brokenSince = newest;
    pause = PAUSE_MIN;
    reported = false;
    timer.cancel();
    try {
      Optional<T> value = source.read(event, Json.parse(data).orElse(Json.object()));
      value.ifPresent(it -> items.add(new Item.Value<>(it)));
      started.complete(null);
    } catch (Streams.Restart restart) {
      brokenSince = MachineClock.now();
      broken();
      return;
    } catch (TenureException error) {
      end(error);
      return;
    }
    readOn();
  }

  private void readOn() {
    if (reader != null && items.size() < UNREAD_MAX) {
      reader.readOn();
    }
  }

  /** Collects the lines of one event. */
  private final class Reader implements Flow.Subscriber<String> {
    private final int mine;
    private final StringBuilder data = new StringBuilder();
    private Flow.Subscription subscription;
    private String event = "";
    private boolean paused;

    Reader(int mine) {
      this.mine = mine;
    }

    @Override
    public void onSubscribe(Flow.Subscription to) {
      subscription = to;
      core.loop.later(() -> {
        if (over || mine != attempt) {
          to.cancel();
        } else {
          reader = this;
          to.request(1);
        }
      });
    }

    @Override
    public void onNext(String line) {
      if (!line.isEmpty()) {
        if (line.startsWith("event: ")) {
          event = line.substring(7);
        } else if (line.startsWith("data: ")) {
          data.append(line.substring(6));
        }
        subscription.request(1);
        return;
      }
      String name = event;
      String text = data.toString();
      event = "";
      data.setLength(0);
      core.loop.later(() -> {
        paused = true;
        heard(mine, name, text);
      });
    }

    void readOn() {
      if (paused) {
        paused = false;
        subscription.request(1);
      }
    }

    void cancel() {
      subscription.cancel();
    }

    @Override
    public void onError(Throwable error) {
      core.loop.later(() -> {
        if (!over && mine == attempt) {
          broken();
        }
      });
    }

    @Override
    public void onComplete() {
      onError(null);
    }
  }
}
