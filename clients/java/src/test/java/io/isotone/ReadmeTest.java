package io.isotone;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.StringWriter;
import java.net.URL;
import java.net.URLClassLoader;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.regex.MatchResult;
import java.util.regex.Pattern;
import javax.tools.JavaCompiler;
import javax.tools.StandardJavaFileManager;
import javax.tools.ToolProvider;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/** Runs every block of README.md: those in Java as one program, one after the other. */
final class ReadmeTest {
  @TempDir Path dir;

  private static List<String> blocks(String language) throws Exception {
    Pattern block = Pattern.compile("^```" + language + "\n(.*?)^```$", Pattern.MULTILINE | Pattern.DOTALL);
    return block.matcher(Files.readString(Path.of("README.md"))).results().map((MatchResult r) -> r.group(1)).toList();
  }

  @Test
  void coordinatesAreThoseOfThePom() throws Exception {
    String pom = Files.readString(Path.of("pom.xml")).replaceAll("\\s+", "");
    for (String block : blocks("xml")) {
      assertTrue(pom.contains(block.replaceAll("\\s+", "").replaceAll("</?dependency>", "")), block);
    }
    assertEquals(blocks("[a-z]*").size(), blocks("xml").size() + blocks("java").size(), "a block that nothing runs");
  }

  @Test
  void blocksRun() throws Exception {
    try (FakeNode node = new FakeNode()) {
      StringBuilder imports = new StringBuilder();
      StringBuilder body = new StringBuilder();
      for (String block : blocks("java")) {
        for (String line : block.replaceAll("127.0.0.1:808\\d", node.addr()).split("\n")) {
          (line.startsWith("import ") ? imports : body).append(line).append('\n');
        }
      }
      run(imports + "public class Readme { public static void main(String[] args) {\n" + body + "} }\n");
      assertFalse(node.requests.isEmpty());
    }
  }

  private void run(String program) throws Exception {
    Path file = Files.writeString(dir.resolve("Readme.java"), program);
    JavaCompiler compiler = ToolProvider.getSystemJavaCompiler();
    StringWriter faults = new StringWriter();
    List<String> options = new ArrayList<>(List.of("-d", dir.toString(), "-cp", "target/classes"));
    try (StandardJavaFileManager files = compiler.getStandardFileManager(null, null, null)) {
      assertTrue(compiler.getTask(faults, files, null, options, null, files.getJavaFileObjects(file)).call(),
          () -> faults + program);
    }
    try (URLClassLoader loader = new URLClassLoader(new URL[] {dir.toUri().toURL()})) {
      loader.setDefaultAssertionStatus(true);
      loader.loadClass("Readme").getMethod("main", String[].class).invoke(null, (Object) new String[0]);
    }
  }
}
