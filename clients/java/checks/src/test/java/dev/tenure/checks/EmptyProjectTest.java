package dev.tenure.checks;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import dev.tenure.client.Server;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

/** The packed jar in an empty Maven project, as a new user would: the first example of the README runs. */
@Timeout(300)
class EmptyProjectTest {
  /** A version that no other build has, so that Maven cannot take an older jar from its cache. */
  private final String version = "0.0.0-" + System.nanoTime();

  @Test
  void theJarServesAnEmptyProject() throws Exception {
    Path directory = Files.createTempDirectory("tenure-empty");
    Path repository = directory.resolve("repository");
    publish(repository, "tenure-parent", Path.of("../pom.xml"), null);
    publish(repository, "tenure-client", Path.of("../client/pom.xml"), Path.of("../client/target/tenure-client-0.1.0.jar"));
    Path project = Files.createDirectories(directory.resolve("project"));
    Files.writeString(project.resolve("pom.xml"), pom(repository));
    Path sources = Files.createDirectories(project.resolve("src/main/java"));
    Files.writeString(sources.resolve("Hello.java"), Documentation.blocks("README.md").get(0));
    String path = run(project, null, "mvn", "-q", "-B", "compile", "dependency:build-classpath", "-Dmdep.outputFile=cp");
    assertTrue(path.isBlank() || !path.contains("ERROR"), path);
    String jars = Files.readString(project.resolve("cp")).strip();
    assertEquals(4, jars.split(":").length, "the client, and three jars of Jackson: " + jars);
    try (Server server = Server.start(1)) {
      String printed = run(project, server.address(), "java", "-cp", "target/classes:" + jars, "Hello");
      assertEquals("holding deploy under token 1\nagain, under token 2\n", printed);
    } finally {
      // What Maven has cached of this version is of no use.
      Path cached = Path.of(System.getProperty("user.home"), ".m2/repository/dev/tenure");
      for (String artifact : List.of("tenure-parent", "tenure-client")) {
        run(project, null, "rm", "-rf", cached.resolve(artifact).resolve(version).toString());
      }
      run(project, null, "rm", "-rf", directory.toString());
    }
  }

  private void publish(Path repository, String artifact, Path pom, Path jar) throws IOException {
    Path to = Files.createDirectories(repository.resolve("dev/tenure").resolve(artifact).resolve(version));
    String named = Files.readString(pom).replace("<version>0.1.0</version>", "<version>" + version + "</version>");
    Files.writeString(to.resolve(artifact + "-" + version + ".pom"), named);
    if (jar != null) {
      Files.copy(jar, to.resolve(artifact + "-" + version + ".jar"));
    }
  }

  private String pom(Path repository) {
    return """
        <project xmlns="http://maven.apache.org/POM/4.0.0">
          <modelVersion>4.0.0</modelVersion>
          <groupId>example</groupId>
          <artifactId>hello</artifactId>
          <version>1</version>
          <properties>
            <maven.compiler.source>17</maven.compiler.source>
            <maven.compiler.target>17</maven.compiler.target>
          </properties>
          <repositories>
            <repository><id>built</id><url>%s</url></repository>
          </repositories>
          <dependencies>
            <dependency>
              <groupId>dev.tenure</groupId>
              <artifactId>tenure-client</artifactId>
              <version>%s</version>
            </dependency>
          </dependencies>
        </project>
        """.formatted(repository.toUri(), version);
  }

  private static String run(Path directory, String address, String... command) throws IOException, InterruptedException {
    ProcessBuilder builder = new ProcessBuilder(command).directory(directory.toFile()).redirectErrorStream(true);
    if (address != null) {
      builder.environment().put("TENURE_ADDR", address);
    }
    Process process = builder.start();
    String printed = new String(process.getInputStream().readAllBytes(), StandardCharsets.UTF_8);
    assertTrue(process.waitFor(240, TimeUnit.SECONDS));
    assertEquals(0, process.exitValue(), printed);
    return printed;
  }
}
