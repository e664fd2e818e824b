package dev.tenure.client;

import com.fasterxml.jackson.databind.JsonNode;
import dev.tenure.client.internal.EventStream;
import dev.tenure.client.internal.Json;
import dev.tenure.client.internal.Settings;
import dev.tenure.client.internal.Streams;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Optional;

/** A watch: every change exactly once and in order, across reconnects and changes of leader. */
public final class Watch implements AutoCloseable {
  private final EventStream<Batch> stream;

  Watch(EventStream<Batch> stream) {
    this.stream = stream;
  }

  /**
   * All changes of one revision that the watch admits.
   *
   * @param revision the revision
   * @param events the changes, in order
   */
  public record Batch(long revision, List<Event> events) {}

  /** Reads the events of a watch, and knows where it goes on after a reconnect. */
  static final class Changes implements EventStream.Source<Batch> {
    private final String name;
    private final boolean prefix;
    private final boolean previous;
    private long next;

    Changes(String name, boolean prefix, boolean previous, long from) {
      this.name = name;
      this.prefix = prefix;
      this.previous = previous;
      this.next = from;
    }

    @Override
    public String path() {
      StringBuilder path = new StringBuilder("/v1/watch?");
      path.append(prefix ? "prefix=" : "name=").append(Streams.query(name));
      if (next != 0) {
        path.append("&from=").append(Json.decimal(next));
      }
      if (previous) {
        path.append("&previous=true");
      }
      return path.toString();
    }

    @Override
    public Optional<Batch> read(String event, JsonNode data) {
      Streams.checkEnd(event, data);
      if (event.equals("slow_consumer")) {
        next = Json.decimal(data, "resume");
        throw new Streams.Restart();
      }
      long revision = Json.decimal(data, "revision");
      // Revisions that were already told are skipped, whatever a member sends.
      if (Long.compareUnsigned(revision, next) < 0) {
        return Optional.empty();
      }
      next = revision + 1;
      if (!event.equals("change")) {
        return Optional.empty();
      }
      return Optional.of(batch(data));
    }
  }

  /** Reads all changes of one revision. */
  static Batch batch(JsonNode change) {
    List<Event> events = new ArrayList<>();
    change.path("events").forEach(it -> events.add(Event.of(it)));
    return new Batch(Json.decimal(change, "revision"), List.copyOf(events));
  }

  /**
   * Waits for the next changes.
   *
   * @return the changes of one revision
   * @throws InterruptedException if the thread is interrupted
   * @throws CompactedException if the history does not reach back far enough any more; the watch is over
   * @throws UnavailableException if no member can be reached for the client's timeout; calling again goes on
   * @throws ClosedException if the watch or the client was closed
   */
  public Batch next() throws InterruptedException {
    return stream.next(-1).orElseThrow();
  }

  /**
   * Waits for the next changes for a time.
   *
   * @param timeout how long
   * @return the changes of one revision; nothing when the time is over
   * @throws InterruptedException if the thread is interrupted
   */
  public Optional<Batch> next(Duration timeout) throws InterruptedException {
    return stream.next(Settings.micros(timeout));
  }

  @Override
  public void close() {
    stream.close();
  }
}
