package dev.tenure.client;

import java.io.IOException;
import java.io.UncheckedIOException;
import java.net.InetSocketAddress;
import java.net.ServerSocket;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.TimeUnit;

/** A cluster of its own for one test: {@code tenure dev --fresh}, which can be frozen. */
public final class Server implements AutoCloseable {
  private final Process process;
  private final int port;

  private Server(Process process, int port) {
    this.process = process;
    this.port = port;
  }

  /** Starts so many members in one process. */
  public static Server start(int members) {
    try {
      int port = freePorts(members);
      Path log = Files.createTempFile("tenure-dev", ".log");
      List<String> command = new ArrayList<>(List.of(binary().toString(), "dev", "--fresh"));
      command.addAll(List.of("--clients", "127.0.0.1:" + port, "--size", Integer.toString(members)));
      Process process = new ProcessBuilder(command).redirectErrorStream(true).redirectOutput(log.toFile()).start();
      Server server = new Server(process, port);
      long deadline = System.nanoTime() + Duration.ofSeconds(30).toNanos();
      while (!Files.readString(log).contains("ready in")) {
        if (!process.isAlive() || System.nanoTime() > deadline) {
          server.close();
          throw new IllegalStateException("tenure dev does not start: " + Files.readString(log));
        }
        Thread.sleep(20);
      }
      return server;
    } catch (IOException error) {
      throw new UncheckedIOException(error);
    } catch (InterruptedException interrupted) {
      throw new IllegalStateException(interrupted);
    }
  }

  /** Finds the binary: {@code TENURE_BIN}, or what cargo has built. */
  private static Path binary() {
    String given = System.getenv("TENURE_BIN");
    if (given != null) {
      return Path.of(given);
    }
    for (String built : List.of("../../../target/release/tenure", "../../../target/debug/tenure")) {
      if (Files.isExecutable(Path.of(built))) {
        return Path.of(built);
      }
    }
    throw new IllegalStateException("no tenure binary: build it with cargo, or set TENURE_BIN");
  }

  /** Returns the first of so many free ports in a row. */
  private static int freePorts(int count) throws IOException {
    for (int attempt = 0; ; attempt++) {
      List<ServerSocket> taken = new ArrayList<>();
      try {
        taken.add(new ServerSocket(0));
        int first = taken.get(0).getLocalPort();
        // A member of several listens for the others on further ports.
        for (int at = 1; at < 2 * count; at++) {
          ServerSocket next = new ServerSocket();
          taken.add(next);
          next.bind(new InetSocketAddress("127.0.0.1", first + at));
        }
        return first;
      } catch (IOException busy) {
        if (attempt == 50) {
          throw busy;
        }
      } finally {
        for (ServerSocket socket : taken) {
          socket.close();
        }
      }
    }
  }

  public String address() {
    return "127.0.0.1:" + port;
  }

  public Client client(String name) throws InterruptedException {
    return Client.builder().addresses(address()).name(name).timeout(Duration.ofSeconds(5)).connect();
  }

  /** Stops the process from running: connections stay open and nothing is answered. */
  public void freeze() {
    signal("STOP");
  }

  public void thaw() {
    signal("CONT");
  }

  private void signal(String name) {
    try {
      new ProcessBuilder("kill", "-" + name, Long.toString(process.pid())).start().waitFor();
    } catch (IOException error) {
      throw new UncheckedIOException(error);
    } catch (InterruptedException interrupted) {
      throw new IllegalStateException(interrupted);
    }
  }

  public void kill() {
    process.destroyForcibly();
    try {
      process.waitFor(10, TimeUnit.SECONDS);
    } catch (InterruptedException interrupted) {
      throw new IllegalStateException(interrupted);
    }
  }

  @Override
  public void close() {
    if (process.isAlive()) {
      thaw();
    }
    process.destroy();
    try {
      if (!process.waitFor(5, TimeUnit.SECONDS)) {
        kill();
      }
    } catch (InterruptedException interrupted) {
      throw new IllegalStateException(interrupted);
    }
  }
}
