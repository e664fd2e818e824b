package dev.tenure.checks;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import dev.tenure.client.Client;
import dev.tenure.client.Guard;
import dev.tenure.client.Server;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.net.URL;
import java.net.URLClassLoader;
import java.nio.file.Files;
import java.nio.file.Path;
import java.sql.Connection;
import java.sql.ResultSet;
import java.sql.SQLException;
import java.sql.Statement;
import javax.sql.DataSource;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

/** The guide of the single writer, against a real PostgreSQL with the fence of the repository. */
@Timeout(120)
class SingleWriterTest {
  @Test
  void theNewestHolderWritesAndAnOlderOneIsRefusedByTheDatabase() throws Exception {
    Path classes = Documentation.compile(Documentation.blocks("guides/single-writer.md").get(0));
    try (Postgres postgres = Postgres.start();
        Server server = Server.start(1);
        Client client = server.client("ana");
        URLClassLoader loader = new URLClassLoader(new URL[] {classes.toUri().toURL()})) {
      DataSource database = postgres.database();
      execute(database, Files.readString(Path.of("../../../crates/fence/src/postgres.sql")));
      execute(database, "create table ledger (id bigint primary key, paid boolean not null default false)");
      execute(database, "insert into ledger (id) values (7), (8)");
      execute(database, "select tenure_fence.protect('ledger', 'ledger')");
      Class<?> ledger = loader.loadClass("Ledger");
      Method pay = ledger.getDeclaredMethod("pay", Client.class, DataSource.class, long.class);
      Method pass = ledger.getDeclaredMethod("pass", Connection.class, String.class, long.class);
      pay.setAccessible(true);
      pass.setAccessible(true);

      long old;
      try (Guard guard = client.lock("ledger")) {
        old = guard.token();
      }
      pay.invoke(null, client, database, 7L);
      assertTrue(isPaid(database, 7));

      // The former holder comes late.
      try (Connection late = database.getConnection()) {
        late.setAutoCommit(false);
        InvocationTargetException refused = assertThrows(
            InvocationTargetException.class, () -> pass.invoke(null, late, "ledger", old));
        assertEquals("TF412", ((SQLException) refused.getCause()).getSQLState());
      }
      // A program that knows nothing of the fence cannot write at all.
      SQLException bare = assertThrows(
          SQLException.class, () -> execute(database, "update ledger set paid = true where id = 8"));
      assertEquals("TF428", bare.getSQLState());
    }
  }

  private static void execute(DataSource database, String sql) throws SQLException {
    try (Connection connection = database.getConnection();
        Statement statement = connection.createStatement()) {
      statement.execute(sql);
    }
  }

  private static boolean isPaid(DataSource database, long id) throws SQLException {
    try (Connection connection = database.getConnection();
        Statement statement = connection.createStatement();
        ResultSet row = statement.executeQuery("select paid from ledger where id = " + id)) {
      return row.next() && row.getBoolean(1);
    }
  }
}
