package halcyon.differential;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

/**
 * Differences that are meant. Each line of the file has a pattern for the kind of step, one for HBase's line, one for Halcyon's, and
 * the reason, with tabs between them. The patterns are for a whole line. A star for Halcyon's line means the rest of its answer:
 * HBase has failed where Halcyon has not. {@code $1} there is the first group of HBase's line.
 */
final class Deliberate {
  /** What a rule says of a pair of lines. */
  enum Meaning { NONE, LINE, REST }

  private record Rule(Pattern kind, Pattern reference, String tested) {}

  private final List<Rule> rules = new ArrayList<>();

  Deliberate(Path file) throws IOException {
    for (String line : Files.readAllLines(file)) {
      if (line.isBlank() || line.startsWith("#")) continue;
      String[] parts = line.split("\t");
      if (parts.length != 4) throw new IOException(file + ": not four parts: " + line);
      rules.add(new Rule(Pattern.compile(parts[0]), Pattern.compile(parts[1]), parts[2]));
    }
  }

  Meaning meaning(String kind, String reference, String tested) {
    for (Rule rule : rules) {
      Matcher match = rule.reference.matcher(reference);
      if (!rule.kind.matcher(kind).matches() || !match.matches()) continue;
      if (rule.tested.equals("*")) return Meaning.REST;
      String expected = match.groupCount() == 0 ? rule.tested : rule.tested.replace("$1", Pattern.quote(match.group(1)));
      if (Pattern.matches(expected, tested)) return Meaning.LINE;
    }
    return Meaning.NONE;
  }
}
