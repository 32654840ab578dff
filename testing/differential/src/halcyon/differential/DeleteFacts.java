package halcyon.differential;

import static halcyon.differential.Ground.F;
import static halcyon.differential.Ground.b;
import static halcyon.differential.Ground.expect;

import org.apache.hadoop.hbase.client.Delete;
import org.apache.hadoop.hbase.client.Put;
import org.apache.hadoop.hbase.client.RowMutations;
import org.apache.hadoop.hbase.client.Scan;

/** Markers, and what they hide until a major compaction. */
final class DeleteFacts {
  private DeleteFacts() {}

  @Fact(value = "a put at the timestamp of a marker is hidden, although it is later, until a major compaction", versions = 3)
  static void putUnderAMarkerIsHidden(Ground g) throws Exception {
    g.delete(new Delete(b("r")).addColumns(F, b("q"), 5));
    g.put("r", "q", 5, "v");
    g.put("r", "q", 4, "v");
    expect("", g.get("r"));
    g.flush();
    g.compact();
    expect("", g.raw());
    g.put("r", "q", 5, "again");
    expect("r/q@5=again", g.get("r"));
  }

  @Fact(value = "a marker of one version hides that version only", versions = 3)
  static void oneVersion(Ground g) throws Exception {
    for (int i = 1; i <= 3; i++) g.put("r", "q", i, "v" + i);
    g.delete(new Delete(b("r")).addColumn(F, b("q"), 2));
    expect("r/q@3=v3 r/q@1=v1", g.all());
  }

  @Fact(value = "a delete of the latest version reveals the one before", versions = 3)
  static void latestVersion(Ground g) throws Exception {
    for (int i = 1; i <= 3; i++) g.put("r", "q", i, "v" + i);
    g.delete(new Delete(b("r")).addColumn(F, b("q")));
    expect("r/q@2=v2 r/q@1=v1", g.all());
    expect("r/q@3!Delete= r/q@3=v3 r/q@2=v2 r/q@1=v1", g.raw());
  }

  @Fact(value = "a delete of a column up to a time leaves what is newer", versions = 3)
  static void columnUpToATime(Ground g) throws Exception {
    for (int i = 1; i <= 3; i++) g.put("r", "q", i, "v" + i);
    g.delete(new Delete(b("r")).addColumns(F, b("q"), 2));
    expect("r/q@3=v3", g.all());
  }

  @Fact(value = "a delete of a family hides all its columns and no other family", versions = 3)
  static void family(Ground g) throws Exception {
    g.put("r", "a", 1, "x");
    g.put("r", "b", 9, "y");
    g.table.put(new Put(b("r")).addColumn(Ground.G, b("a"), 1, b("z")));
    g.delete(new Delete(b("r")).addFamily(F, 5));
    expect("r/b@9=y r/a@1=z", g.all());
  }

  @Fact(value = "a delete of a family's version hides all its cells of that timestamp", versions = 3)
  static void familyVersion(Ground g) throws Exception {
    g.put("r", "a", 1, "x");
    g.put("r", "a", 2, "y");
    g.put("r", "b", 2, "z");
    g.delete(new Delete(b("r")).addFamilyVersion(F, 2));
    expect("r/a@1=x", g.all());
  }

  @Fact(value = "a delete of a row is one marker in each family", versions = 3)
  static void row(Ground g) throws Exception {
    g.put("r", "a", 1, "x");
    g.delete(new Delete(b("r"), 4));
    expect("", g.all());
    expect("r/@4!DeleteFamily= r/a@1=x r/@4!DeleteFamily=", g.raw());
  }

  @Fact(value = "a flush keeps markers, a major compaction drops them with what they hide", versions = 3)
  static void flushKeepsMarkers(Ground g) throws Exception {
    g.put("r", "q", 1, "v");
    g.delete(new Delete(b("r")).addColumns(F, b("q"), 1));
    g.flush();
    expect(true, g.raw().startsWith("r/q@1!DeleteColumn="));
    g.compact();
    expect("", g.raw());
  }

  @Fact(value = "KEEP_DELETED_CELLS keeps deleted cells through a major compaction for reads of their time", versions = 3, keep = "TRUE")
  static void keepDeletedCells(Ground g) throws Exception {
    g.put("r", "q", 1, "v");
    g.delete(new Delete(b("r")).addColumns(F, b("q"), 2));
    g.flush();
    g.compact();
    expect("", g.get("r"));
    expect("r/q@1=v", g.scan(new Scan().setTimeRange(0, 2)));
    expect("r/q@2!DeleteColumn= r/q@1=v", g.raw());
  }

  @Fact(value = "without KEEP_DELETED_CELLS a marker hides cells from reads of their time as well", versions = 3)
  static void markersHideInTimeRanges(Ground g) throws Exception {
    g.put("r", "q", 1, "v");
    g.delete(new Delete(b("r")).addColumns(F, b("q"), 2));
    expect("", g.scan(new Scan().setTimeRange(0, 2)));
  }

  @Fact(value = "a deleted version does not count against the limit of versions", versions = 2)
  static void deletedVersionsDoNotCount(Ground g) throws Exception {
    for (int i = 1; i <= 3; i++) g.put("r", "q", i, "v" + i);
    g.delete(new Delete(b("r")).addColumn(F, b("q"), 3));
    expect("r/q@2=v2 r/q@1=v1", g.all());
  }

  @Fact(value = "within one atomic batch a delete with the time of a put hides it, whatever their order", versions = 3)
  static void atomicDeleteAndPut(Ground g) throws Exception {
    RowMutations mutations = new RowMutations(b("r"));
    mutations.add(new Delete(b("r")).addColumns(F, b("q"), 5));
    mutations.add(new Put(b("r")).addColumn(F, b("q"), 5, b("v")));
    g.table.mutateRow(mutations);
    expect("", g.get("r"));
  }

  @Fact("a delete of a row that is not there succeeds and leaves a marker")
  static void nothingToDelete(Ground g) throws Exception {
    g.delete(new Delete(b("r")).addFamily(F, 3));
    expect("r/@3!DeleteFamily=", g.raw());
  }
}
