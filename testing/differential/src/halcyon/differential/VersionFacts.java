package halcyon.differential;

import static halcyon.differential.Ground.F;
import static halcyon.differential.Ground.b;
import static halcyon.differential.Ground.expect;

import java.util.List;
import org.apache.hadoop.hbase.client.Get;
import org.apache.hadoop.hbase.client.Put;
import org.apache.hadoop.hbase.client.Scan;

/** Versions, timestamps and times to live. */
final class VersionFacts {
  private VersionFacts() {}

  @Fact(value = "a read returns no more versions than the family keeps, also before a flush", versions = 2)
  static void versionsAreLimitedBeforeAndAfterFlush(Ground g) throws Exception {
    for (int i = 1; i <= 4; i++) g.put("r", "q", i, "v" + i);
    expect("r/q@4=v4 r/q@3=v3", g.all());
    g.flush();
    expect("r/q@4=v4 r/q@3=v3", g.all());
    g.compact();
    expect("r/q@4=v4 r/q@3=v3", g.raw());
  }

  @Fact(value = "a put with an older timestamp does not hide a newer one", versions = 1)
  static void orderIsByTimestampNotByWrite(Ground g) throws Exception {
    g.put("r", "q", 5, "new");
    g.put("r", "q", 3, "old");
    expect("r/q@5=new", g.get("r"));
  }

  @Fact(value = "of two puts with one timestamp the later one is read", versions = 3)
  static void sameTimestampIsReplaced(Ground g) throws Exception {
    g.put("r", "q", 5, "first");
    g.flush();
    g.put("r", "q", 5, "second");
    expect("r/q@5=second", g.all());
    g.flush();
    g.compact();
    expect("r/q@5=second", g.raw());
  }

  @Fact(value = "one put may hold several versions of a column", versions = 3)
  static void severalVersionsInOnePut(Ground g) throws Exception {
    g.table.put(new Put(b("r")).addColumn(F, b("q"), 1, b("a")).addColumn(F, b("q"), 3, b("c")).addColumn(F, b("q"), 2, b("b")));
    expect("r/q@3=c r/q@2=b r/q@1=a", g.all());
  }

  @Fact(value = "a time range selects versions before they are counted", versions = 3)
  static void timeRangeComesBeforeTheCount(Ground g) throws Exception {
    for (int i = 1; i <= 3; i++) g.put("r", "q", i, "v" + i);
    expect("r/q@2=v2", g.get(new Get(b("r")).setTimeRange(1, 3)));
    expect("r/q@1=v1", g.get(new Get(b("r")).setTimestamp(1)));
    expect("", g.get(new Get(b("r")).setTimeRange(2, 2)));
  }

  @Fact(value = "a version that the family does not keep is found by its time until a flush drops it", versions = 1)
  static void excessVersionsAreDroppedByFlush(Ground g) throws Exception {
    g.put("r", "q", 1, "old");
    g.put("r", "q", 2, "new");
    expect("r/q@1=old", g.scan(new Scan().setTimeRange(0, 2)));
    g.flush();
    expect("", g.scan(new Scan().setTimeRange(0, 2)));
  }

  @Fact(value = "a family's time range replaces that of the scan", versions = 3)
  static void familyTimeRange(Ground g) throws Exception {
    for (int i = 1; i <= 3; i++) g.put("r", "q", i, "v" + i);
    expect("r/q@1=v1", g.scan(new Scan().setTimeRange(3, 4).setColumnFamilyTimeRange(F, 1, 2)));
  }

  @Fact(value = "cells older than the time to live are not read", ttlSeconds = 3600)
  static void timeToLive(Ground g) throws Exception {
    long now = System.currentTimeMillis();
    g.put("r", "old", now - 7_200_000, "x");
    g.put("r", "young", now - 60_000, "y");
    expect("r/young@now=y", g.get("r"));
    g.flush();
    g.compact();
    expect("r/young@now=y", g.raw());
  }

  @Fact(value = "as many versions as MIN_VERSIONS outlive the time to live", ttlSeconds = 3600, versions = 3, minVersions = 1)
  static void minVersionsOutlive(Ground g) throws Exception {
    for (int i = 1; i <= 3; i++) g.put("r", "q", i, "v" + i);
    expect("r/q@3=v3", g.all());
    g.flush();
    g.compact();
    expect("r/q@3=v3", g.raw());
  }

  @Fact(value = "a put's own time to live ends it, and what it hid is read again if it is still there", versions = 3)
  static void cellTimeToLive(Ground g) throws Exception {
    g.put("r", "q", 1, "old");
    g.table.put(new Put(b("r")).addColumn(F, b("q"), System.currentTimeMillis() - 1000, b("short")).setTTL(1));
    expect("r/q@1=old", g.get("r"));
  }

  @Fact(value = "without a timestamp a cell has the server's, all cells of a put the same", versions = 3)
  static void serverTimestamp(Ground g) throws Exception {
    long before = System.currentTimeMillis();
    g.table.put(new Put(b("r")).addColumn(F, b("a"), b("1")).addColumn(F, b("b"), b("2")));
    var cells = g.table.get(new Get(b("r"))).rawCells();
    expect(cells[0].getTimestamp(), cells[1].getTimestamp());
    expect(true, cells[0].getTimestamp() >= before && cells[0].getTimestamp() <= System.currentTimeMillis());
  }

  @Fact("an empty qualifier and an empty value are legal")
  static void emptyQualifierAndValue(Ground g) throws Exception {
    g.put("r", "", 1, "");
    expect("r/@1=", g.get(new Get(b("r")).addColumn(F, b(""))));
  }

  @Fact("cells come in the order of unsigned bytes")
  static void orderIsUnsigned(Ground g) throws Exception {
    g.table.put(List.of(new Put(new byte[] {(byte) 0xff}).addColumn(F, b("q"), 1, b("2")), new Put(new byte[] {0x7f}).addColumn(F, b("q"), 1, b("1"))));
    expect("\\x7F/q@1=1 \\xFF/q@1=2", g.all());
  }

  @Fact("a mutation with a family that is not there is refused as a whole")
  static void unknownFamily(Ground g) throws Exception {
    Ground.expectError("NoSuchColumnFamilyException",
        () -> g.table.put(new Put(b("r")).addColumn(F, b("q"), 1, b("v")).addColumn(b("none"), b("q"), 1, b("v"))));
    expect("", g.get("r"));
  }
}
