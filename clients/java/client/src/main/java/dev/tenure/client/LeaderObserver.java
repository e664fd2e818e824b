package dev.tenure.client;

import com.fasterxml.jackson.databind.JsonNode;
import dev.tenure.client.internal.EventStream;
import dev.tenure.client.internal.Json;
import dev.tenure.client.internal.Settings;
import dev.tenure.client.internal.Streams;
import java.time.Duration;
import java.util.Optional;

/** Observes an election: the current leader, then each later change that the observer can still learn of. */
public final class LeaderObserver implements AutoCloseable {
  private final EventStream<Optional<Leader>> stream;

  LeaderObserver(EventStream<Optional<Leader>> stream) {
    this.stream = stream;
  }

  /** Reads the events of an observation. After a reconnect, a state that was already told is not told again. */
  static final class Changes implements EventStream.Source<Optional<Leader>> {
    private final String name;
    private Optional<Leader> last;

    Changes(String name) {
      this.name = name;
    }

    @Override
    public String path() {
      return "/v1/elections/" + Streams.path(name) + "?view=observe";
    }

    @Override
    public Optional<Optional<Leader>> read(String event, JsonNode data) {
      Streams.checkEnd(event, data);
      if (!event.equals("leader") && !event.equals("vacant")) {
        return Optional.empty();
      }
      JsonNode it = data.path("leader");
      Optional<Leader> leader = it.isObject()
          ? Optional.of(new Leader(Json.string(it, "client"), Json.bytes(it, "value"), Json.decimal(it, "token")))
          : Optional.empty();
      if (leader.equals(last)) {
        return Optional.empty();
      }
      last = leader;
      return Optional.of(leader);
    }
  }

  /**
   * Waits for the next change. The first one is the current state.
   *
   * @return the leader; nothing if the election is vacant
   * @throws InterruptedException if the thread is interrupted
   * @throws UnavailableException if no member can be reached for the client's timeout; calling again goes on
   */
  public Optional<Leader> next() throws InterruptedException {
    return stream.next(-1).orElseThrow();
  }

  /**
   * Waits for the next change for a time.
   *
   * @param timeout how long
   * @return nothing when the time is over; else the leader, or nothing in it if the election is vacant
   * @throws InterruptedException if the thread is interrupted
   */
  public Optional<Optional<Leader>> next(Duration timeout) throws InterruptedException {
    return stream.next(Settings.micros(timeout));
  }

  @Override
  public void close() {
    stream.close();
  }
}
