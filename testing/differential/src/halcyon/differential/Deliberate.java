package halcyon.differential;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.regex.Pattern;

/**
 * Differences that are meant. Each line of the file has a pattern for the kind of step, one for HBase's line, one for Halcyon's, and
 * the reason, with tabs between them. The patterns are for a whole line. A star for Halcyon's line means the rest of its answer:
 * HBase has failed where Halcyon has not.
 */
final class Deliberate {
  /** What a rule says of a pair of lines. */
  enum Meaning { NONE, LINE, REST }

  private record Rule(Pattern kind, Pattern reference, Pattern tested) {}

  private final List<Rule> rules = new ArrayList<>();

  Deliberate(Path file) throws IOException {
    for (String line : Files.readAllLines(file)) {
      if (line.isBlank() || line.startsWith("#")) continue;
      String[] parts = line.split("\t");
      if (parts.length != 4) throw new IOException(file + ": not four parts: " + line);
      rules.add(new Rule(Pattern.compile(parts[0]), Pattern.compile(parts[1]), parts[2].equals("*") ? null : Pattern.compile(parts[2])));
    }
  }

  Meaning meaning(String kind, String reference, String tested) {
    for (Rule rule : rules) {
      if (!rule.kind.matcher(kind).matches() || !rule.reference.matcher(reference).matches()) continue;
      if (rule.tested != null && !rule.tested.matcher(tested).matches()) continue;
      return rule.tested == null ? Meaning.REST : Meaning.LINE;
    }
    return Meaning.NONE;
  }
}
