package dev.tenure.checks;

import java.io.IOException;
import java.net.ServerSocket;
import java.nio.file.Files;
import java.nio.file.Path;
import java.sql.Connection;
import java.sql.SQLException;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.List;
import java.util.concurrent.TimeUnit;
import java.util.stream.Stream;
import javax.sql.DataSource;
import org.postgresql.ds.PGSimpleDataSource;

/** A PostgreSQL of its own for one test, on loopback. */
final class Postgres implements AutoCloseable {
  private final Process process;
  private final PGSimpleDataSource database;
  private final Path directory;

  private Postgres(Process process, PGSimpleDataSource database, Path directory) {
    this.process = process;
    this.database = database;
    this.directory = directory;
  }

  static Postgres start() throws IOException, InterruptedException {
    Path programs = programs();
    Path directory = Files.createTempDirectory("tenure-postgres");
    boolean root = System.getProperty("user.name").equals("root");
    if (root) {
      // PostgreSQL does not run as root.
      run(List.of("chown", "postgres", directory.toString()));
    }
    String data = directory.resolve("data").toString();
    run(as(root, programs.resolve("initdb").toString(), "-D", data, "-U", "tenure", "-A", "trust", "--no-sync"));
    int port = freePort();
    List<String> command = as(
        root, programs.resolve("postgres").toString(), "-D", data, "-h", "127.0.0.1", "-p", Integer.toString(port),
        "-k", directory.toString(), "-F");
    Process process = new ProcessBuilder(command)
        .redirectErrorStream(true)
        .redirectOutput(Files.createTempFile("postgres", ".log").toFile())
        .start();
    PGSimpleDataSource database = new PGSimpleDataSource();
    database.setServerNames(new String[] {"127.0.0.1"});
    database.setPortNumbers(new int[] {port});
    database.setUser("tenure");
    database.setDatabaseName("postgres");
    Postgres started = new Postgres(process, database, directory);
    long deadline = System.nanoTime() + TimeUnit.SECONDS.toNanos(60);
    while (!started.accepts()) {
      if (!process.isAlive() || System.nanoTime() > deadline) {
        started.close();
        throw new IllegalStateException("PostgreSQL does not start");
      }
      Thread.sleep(50);
    }
    return started;
  }

  DataSource database() {
    return database;
  }

  private boolean accepts() {
    try (Connection connection = database.getConnection()) {
      return connection.isValid(5);
    } catch (SQLException notYet) {
      return false;
    }
  }

  private static Path programs() throws IOException {
    try (Stream<Path> versions = Files.list(Path.of("/usr/lib/postgresql"))) {
      return versions
          .map(it -> it.resolve("bin"))
          .filter(it -> Files.exists(it.resolve("initdb")))
          .max(Comparator.naturalOrder())
          .orElseThrow(() -> new IllegalStateException("no initdb: install PostgreSQL"));
    }
  }

  private static List<String> as(boolean root, String... command) {
    List<String> whole = new ArrayList<>(root ? List.of("setpriv", "--reuid=postgres", "--regid=postgres") : List.of());
    if (root) {
      whole.add("--clear-groups");
    }
    whole.addAll(List.of(command));
    return whole;
  }

  private static void run(List<String> command) throws IOException, InterruptedException {
    Process process = new ProcessBuilder(command).redirectErrorStream(true).start();
    String printed = new String(process.getInputStream().readAllBytes());
    if (process.waitFor() != 0) {
      throw new IllegalStateException(command + ": " + printed);
    }
  }

  private static int freePort() throws IOException {
    try (ServerSocket socket = new ServerSocket(0)) {
      return socket.getLocalPort();
    }
  }

  @Override
  public void close() {
    process.destroy();
    try {
      process.waitFor(20, TimeUnit.SECONDS);
      run(List.of("rm", "-rf", directory.toString()));
    } catch (IOException | InterruptedException error) {
      throw new IllegalStateException(error);
    }
  }
}
