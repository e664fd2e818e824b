package dev.tenure.checks;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import dev.tenure.client.Client;
import dev.tenure.client.Server;
import java.io.File;
import java.lang.reflect.Method;
import java.net.URL;
import java.net.URLClassLoader;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.util.List;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

/** The examples of the documentation compile without warnings, and the first one runs. */
@Timeout(120)
class DocumentationTest {
  @ParameterizedTest
  @ValueSource(strings = {
    "README.md", "guides/cron.md", "guides/migrations.md", "guides/single-writer.md", "shedlock/README.md"
  })
  void everyExampleCompiles(String page) throws Exception {
    List<String> blocks = Documentation.blocks(page);
    assertFalse(blocks.isEmpty());
    for (String block : blocks) {
      Documentation.compile(block);
    }
  }

  @Test
  void theFirstExampleRuns() throws Exception {
    Path classes = Documentation.compile(Documentation.blocks("README.md").get(0));
    try (Server server = Server.start(1)) {
      String path = classes + File.pathSeparator + System.getProperty("java.class.path");
      ProcessBuilder hello = new ProcessBuilder("java", "-cp", path, "Hello").redirectErrorStream(true);
      hello.environment().put("TENURE_ADDR", server.address());
      Process process = hello.start();
      String printed = new String(process.getInputStream().readAllBytes(), StandardCharsets.UTF_8);
      assertTrue(process.waitFor(60, TimeUnit.SECONDS));
      assertEquals(0, process.exitValue(), printed);
      assertEquals("holding deploy under token 1\nagain, under token 2\n", printed);
    }
  }

  @Test
  void theCronExampleRunsOncePerTickAndTheMigrationOnce() throws Exception {
    Path cron = Documentation.compile(Documentation.blocks("guides/cron.md").get(0));
    try (Server server = Server.start(1);
        URLClassLoader loader = new URLClassLoader(new URL[] {cron.toUri().toURL()});
        Client ana = server.client("ana");
        Client ben = server.client("ben")) {
      Method tick = loader.loadClass("Nightly").getDeclaredMethod("tick", Client.class, Runnable.class);
      tick.setAccessible(true);
      Object[] second = {null};
      Object first = tick.invoke(null, ana, (Runnable) () -> {
        try {
          second[0] = tick.invoke(null, ben, (Runnable) () -> {});
        } catch (ReflectiveOperationException error) {
          throw new IllegalStateException(error);
        }
      });
      assertEquals(true, first);
      assertEquals(false, second[0]);
    }
  }
}
