import halcyon.compat.Jumps;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import org.apache.hadoop.hbase.TableName;
import org.apache.hadoop.hbase.client.Admin;
import org.apache.hadoop.hbase.client.CheckAndMutate;
import org.apache.hadoop.hbase.client.ColumnFamilyDescriptorBuilder;
import org.apache.hadoop.hbase.client.Connection;
import org.apache.hadoop.hbase.client.Delete;
import org.apache.hadoop.hbase.client.Get;
import org.apache.hadoop.hbase.client.Increment;
import org.apache.hadoop.hbase.client.Put;
import org.apache.hadoop.hbase.client.Result;
import org.apache.hadoop.hbase.client.ResultScanner;
import org.apache.hadoop.hbase.client.RowMutations;
import org.apache.hadoop.hbase.client.Scan;
import org.apache.hadoop.hbase.client.Table;
import org.apache.hadoop.hbase.client.TableDescriptorBuilder;
import org.apache.hadoop.hbase.util.Bytes;

/** Times that mutations get when they are written, and filters that send each family to rows of its own. The table "marks" is there. */
final class TimesAndJumps {
  private static final byte[] F = Bytes.toBytes("f"), G = Bytes.toBytes("g"), A = Bytes.toBytes("a");

  private TimesAndJumps() {
  }

  static void run(Connection connection, Admin admin) throws Exception {
    try (Table table = connection.getTable(TableName.valueOf("marks"))) {
      times(table);
    }
    TableName name = TableName.valueOf("jumps");
    admin.createTable(TableDescriptorBuilder.newBuilder(name).setColumnFamily(ColumnFamilyDescriptorBuilder.of(F))
      .setColumnFamily(ColumnFamilyDescriptorBuilder.of(G)).build());
    try (Table table = connection.getTable(name)) {
      jumps(table);
    }
  }

  private static String text(Table table, String row) throws Exception {
    return Bytes.toString(table.get(new Get(Bytes.toBytes(row))).value());
  }

  private static Put put(String row) {
    return new Put(Bytes.toBytes(row)).addColumn(F, A, A);
  }

  private static Delete delete(String row) {
    return new Delete(Bytes.toBytes(row));
  }

  private static void times(Table table) throws Exception {
    Coprocessors.say("what a region leaves in mutations", () -> text(table, "stamps"));
    Coprocessors.say("a put seen behind its write", () -> {
      table.put(put("seen1"));
      return text(table, "seen1");
    });
    Coprocessors.say("a put with a time to live", () -> {
      table.put(put("seen2").setTTL(600_000));
      return text(table, "seen2");
    });
    Coprocessors.say("a put with its time", () -> {
      table.put(new Put(Bytes.toBytes("seen3")).addColumn(F, A, 5, A));
      return text(table, "seen3");
    });
    Coprocessors.say("a delete of the newest version", () -> {
      table.delete(delete("seen3").addColumn(F, A));
      return text(table, "seen3");
    });
    Coprocessors.say("a delete of a row", () -> {
      table.delete(delete("seen3"));
      return text(table, "seen3");
    });
    Coprocessors.say("a put to which a hook adds", () -> {
      table.put(put("seenindex"));
      return text(table, "seenindex");
    });
    Coprocessors.say("two puts", () -> {
      table.put(Arrays.asList(put("seen4"), put("seen5")));
      return text(table, "seen4") + " " + text(table, "seen5");
    });
    Coprocessors.say("a checked put", () -> {
      table.checkAndMutate(CheckAndMutate.newBuilder(Bytes.toBytes("seen6")).ifNotExists(F, A).build(put("seen6")));
      return text(table, "seen6");
    });
    for (int at = 0; at < 2; at++) {
      Coprocessors.say("a checked put that hooks change", () -> {
        byte[] row = Bytes.toBytes("seencheck");
        boolean done = table.checkAndMutate(CheckAndMutate.newBuilder(row).ifNotExists(F, A).build(put("seencheck"))).isSuccess();
        return done + " " + text(table, "seencheck") + " behind " + text(table, "seenbehind");
      });
    }
    Coprocessors.say("row mutations seen", () -> {
      table.mutateRow(RowMutations.of(Arrays.asList(put("seen7"), delete("seen7").addColumns(F, Bytes.toBytes("b")))));
      return text(table, "seen7");
    });
    for (int at = 0; at < 2; at++) {
      Coprocessors.say("an increment seen", () -> {
        table.increment(new Increment(Bytes.toBytes("seen8")).addColumn(F, A, 1));
        return text(table, "seen8");
      });
    }
  }

  private static void jumps(Table table) throws Exception {
    List<Put> puts = new ArrayList<>();
    for (int at = 0; at < 40; at++) {
      byte[] row = Bytes.toBytes(String.format("%02d", at));
      Put put = new Put(row);
      if (at % 4 != 1) put.addColumn(F, A, row);
      if (at % 5 != 2) put.addColumn(G, A, row).addColumn(G, G, row);
      if (!put.isEmpty()) puts.add(put);
    }
    table.put(puts);
    for (int step : new int[] { 1, 3, 7 }) {
      for (boolean byKey : new boolean[] { false, true }) {
        for (boolean reversed : new boolean[] { false, true }) {
          String how = "jumps of " + step + (byKey ? " by key" : "") + (reversed ? " reversed" : "");
          Coprocessors.say(how, () -> rows(table, new Scan().setFilter(new Jumps(step, byKey)).setReversed(reversed)));
          Coprocessors.say(how + ", one family", () -> rows(table, new Scan().addFamily(G).setFilter(new Jumps(step, byKey)).setReversed(reversed)));
          Coprocessors.say(how + ", row by row", () -> rows(table, new Scan().setFilter(new Jumps(step, byKey)).setReversed(reversed).setCaching(1)));
        }
      }
    }
  }

  /** Rows with the families of their cells. */
  private static String rows(Table table, Scan scan) throws Exception {
    StringBuilder text = new StringBuilder();
    try (ResultScanner scanner = table.getScanner(scan)) {
      for (Result result : scanner) {
        text.append(Bytes.toString(result.getRow()));
        for (byte[] family : result.getNoVersionMap().keySet()) text.append(Bytes.toString(family)).append(result.getFamilyMap(family).size());
        text.append(' ');
      }
    }
    return text.toString();
  }
}
