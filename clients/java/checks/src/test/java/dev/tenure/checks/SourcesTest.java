package dev.tenure.checks;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.regex.Pattern;
import java.util.stream.Stream;
import org.junit.jupiter.api.Test;

/** What the sources must not have: a monitor pins a virtual thread that waits under it. */
class SourcesTest {
  private static final Pattern MONITOR =
      Pattern.compile("\\bsynchronized\\s*(\\(|\\w+ \\w+\\()|\\.notifyAll\\(\\)|\\bObject\\.wait\\b");

  @Test
  void nothingWaitsUnderAMonitor() throws IOException {
    List<Path> found = new ArrayList<>();
    int read = 0;
    for (String module : List.of("client", "shedlock")) {
      try (Stream<Path> files = Files.walk(Path.of("..", module, "src/main/java"))) {
        for (Path file : files.filter(it -> it.toString().endsWith(".java")).toList()) {
          read++;
          if (MONITOR.matcher(Files.readString(file)).find()) {
            found.add(file);
          }
        }
      }
    }
    assertTrue(read > 50, "the sources were read: " + read);
    assertEquals(List.of(), found);
  }
}
