package halcyon.differential;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.regex.Pattern;

/**
 * Differences that are meant. Each line of the file has a pattern for HBase's line, one for Halcyon's, and the reason, with
 * tabs between them. Both patterns are for a whole line.
 */
final class Deliberate {
  private record Rule(Pattern reference, Pattern tested) {}

  private final List<Rule> rules = new ArrayList<>();
  int used;

  Deliberate(Path file) throws IOException {
    for (String line : Files.readAllLines(file)) {
      if (line.isBlank() || line.startsWith("#")) continue;
      String[] parts = line.split("\t");
      if (parts.length != 3) throw new IOException(file + ": not three parts: " + line);
      rules.add(new Rule(Pattern.compile(parts[0]), Pattern.compile(parts[1])));
    }
  }

  boolean explains(String reference, String tested) {
    for (Rule rule : rules) {
      if (rule.reference.matcher(reference).matches() && rule.tested.matcher(tested).matches()) {
        used++;
        return true;
      }
    }
    return false;
  }
}
