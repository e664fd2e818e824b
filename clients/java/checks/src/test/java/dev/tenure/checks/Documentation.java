package dev.tenure.checks;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import javax.tools.JavaCompiler;
import javax.tools.ToolProvider;

/** The examples of the documentation: each block of Java is a file of its own. */
final class Documentation {
  private static final Pattern BLOCK = Pattern.compile("```java\n(.*?)```", Pattern.DOTALL);
  private static final Pattern CLASS = Pattern.compile("^(?:public )?class (\\w+)", Pattern.MULTILINE);

  private Documentation() {}

  /** Returns the blocks of a page, in order. */
  static List<String> blocks(String page) throws IOException {
    List<String> blocks = new ArrayList<>();
    Matcher found = BLOCK.matcher(Files.readString(Path.of("..").resolve(page)));
    while (found.find()) {
      blocks.add(found.group(1));
    }
    return blocks;
  }

  /** Compiles a block as a user would, and returns the directory of its classes. */
  static Path compile(String block) throws IOException {
    Matcher named = CLASS.matcher(block);
    if (!named.find()) {
      throw new IllegalArgumentException("a block without a class: " + block);
    }
    Path directory = Files.createTempDirectory("tenure-docs");
    Path file = directory.resolve(named.group(1) + ".java");
    Files.writeString(file, block);
    JavaCompiler compiler = ToolProvider.getSystemJavaCompiler();
    String path = System.getProperty("java.class.path");
    int code = compiler.run(
        null, null, null, "-Xlint:all,-try,-path", "-Werror", "--release", "17", "-proc:none", "-cp", path,
        "-d", directory.toString(), file.toString());
    if (code != 0) {
      throw new IllegalArgumentException("an example does not compile: " + block);
    }
    return directory;
  }
}
