package dev.tenure.driver;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import dev.tenure.client.Client;
import dev.tenure.client.UnavailableException;
import dev.tenure.client.internal.Plant;
import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.locks.ReentrantLock;

/** Speaks the driver protocol: reads commands as JSON lines, runs them side by side, writes answers and events. */
public final class Driver {
  private static final ObjectMapper MAPPER = new ObjectMapper();

  private final PrintStream out = new PrintStream(System.out, false, StandardCharsets.UTF_8);
  private final ReentrantLock writing = new ReentrantLock();
  private final ExecutorService threads = Executors.newCachedThreadPool(task -> {
    Thread thread = new Thread(task, "driver");
    thread.setDaemon(true);
    return thread;
  });
  private final Map<Long, Future<?>> running = new ConcurrentHashMap<>();
  private final Commands commands = new Commands(this);

  private Driver() {}

  /**
   * Runs until stdin ends.
   *
   * @param args none
   * @throws IOException if stdin cannot be read
   */
  public static void main(String[] args) throws IOException {
    Plant.select(System.getenv("TENURE_PLANT"));
    warm();
    new Driver().run();
    System.exit(0);
  }

  /** Loads what connecting needs, so that the first command of a scenario is not late on a busy machine. */
  private static void warm() {
    try {
      Client.builder().addresses("127.0.0.1:1").timeout(Duration.ofMillis(1)).connect().close();
    } catch (UnavailableException expected) {
      // Nothing listens there.
    } catch (InterruptedException stopped) {
      Thread.currentThread().interrupt();
    }
  }

  private void run() throws IOException {
    BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
    for (String line = in.readLine(); line != null; line = in.readLine()) {
      if (line.isBlank()) {
        continue;
      }
      JsonNode command = MAPPER.readTree(line);
      long id = command.path("id").asLong();
      if (command.path("do").asText().equals("cancel")) {
        Future<?> of = running.get(command.path("of").asLong());
        if (of != null) {
          of.cancel(true);
        }
        answer(id, "ok", MAPPER.createObjectNode(), Clock.micros());
        continue;
      }
      // The entry is there before the command can end.
      ReentrantLock started = new ReentrantLock();
      started.lock();
      try {
        running.put(id, threads.submit(() -> {
          started.lock();
          started.unlock();
          try {
            perform(id, command);
          } finally {
            running.remove(id);
          }
        }));
      } finally {
        started.unlock();
      }
    }
  }

  private void perform(long id, JsonNode command) {
    ObjectNode ok = MAPPER.createObjectNode();
    try {
      commands.perform(command, ok);
      answer(id, "ok", ok, commands.at());
    } catch (Throwable error) {
      answer(id, "error", Errors.shown(error), commands.at());
    }
    if (command.path("do").asText().equals("exit")) {
      System.exit(0);
    }
  }

  private void answer(long id, String what, ObjectNode result, long at) {
    ObjectNode line = MAPPER.createObjectNode().put("id", id);
    line.set(what, result);
    write(line.put("at_us", at));
  }

  /** Writes an event of a stream. */
  void event(String name, String stream, ObjectNode fields) {
    ObjectNode line = MAPPER.createObjectNode().put("event", name).put("stream", stream);
    line.setAll(fields);
    write(line.put("at_us", Clock.micros()));
  }

  private void write(ObjectNode line) {
    writing.lock();
    try {
      out.println(line);
      out.flush();
    } finally {
      writing.unlock();
    }
  }

  ExecutorService threads() {
    return threads;
  }
}
