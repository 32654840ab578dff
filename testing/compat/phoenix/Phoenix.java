import java.sql.Connection;
import java.sql.DriverManager;
import java.sql.PreparedStatement;
import java.sql.ResultSet;
import java.sql.Statement;
import java.util.Properties;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.hbase.HBaseConfiguration;
import org.apache.hadoop.hbase.TableName;
import org.apache.hadoop.hbase.client.Admin;
import org.apache.hadoop.hbase.client.CompactionState;
import org.apache.hadoop.hbase.client.ConnectionFactory;
import org.apache.hadoop.hbase.client.ResultScanner;
import org.apache.hadoop.hbase.client.Scan;
import org.apache.hadoop.hbase.client.Table;

/** Prints what Phoenix answers: {@code Phoenix ZOOKEEPER}. */
public class Phoenix {
  private static Connection connection;

  private interface Answer {
    Object get() throws Exception;
  }

  private static void say(String what, Answer answer) {
    String said;
    try {
      said = String.valueOf(answer.get());
    } catch (Throwable error) {
      error.printStackTrace();
      said = error.getClass().getName() + ": " + String.valueOf(error.getMessage()).split("\n")[0];
    }
    System.out.println(what + " | " + said);
    System.out.flush();
  }

  private static void run(String sql) {
    say(sql, () -> {
      try (Statement statement = connection.createStatement()) {
        int count = statement.executeUpdate(sql);
        connection.commit();
        return count;
      }
    });
  }

  private static void ask(String sql) {
    say(sql, () -> {
      StringBuilder text = new StringBuilder();
      try (Statement statement = connection.createStatement(); ResultSet rows = statement.executeQuery(sql)) {
        int columns = rows.getMetaData().getColumnCount();
        while (rows.next()) {
          for (int at = 1; at <= columns; at++) text.append(at > 1 ? "," : "").append(rows.getString(at));
          text.append("; ");
        }
      }
      return text.toString().trim();
    });
  }

  /** Flushes a table and compacts all its files. */
  private static void compact(Admin admin, String table) throws Exception {
    TableName name = TableName.valueOf(table);
    admin.flush(name);
    long before = admin.getLastMajorCompactionTimestamp(name);
    admin.majorCompact(name);
    for (int tries = 0; tries < 300; tries++) {
      Thread.sleep(200);
      if (admin.getLastMajorCompactionTimestamp(name) > before && admin.getCompactionState(name) == CompactionState.NONE && tries > 10) return;
    }
    throw new Exception("no compaction of " + table);
  }

  /** What Phoenix's observers of flushes, compactions and store scanners do. */
  private static void stores(String[] address) throws Exception {
    Configuration configuration = HBaseConfiguration.create();
    configuration.set("hbase.zookeeper.quorum", address[0]);
    configuration.set("hbase.zookeeper.property.clientPort", address[1]);
    try (org.apache.hadoop.hbase.client.Connection hbase = ConnectionFactory.createConnection(configuration); Admin admin = hbase.getAdmin()) {
      run("CREATE TABLE fleeting (id INTEGER PRIMARY KEY, v VARCHAR) TTL = 3");
      for (int at = 0; at < 10; at++) run("UPSERT INTO fleeting VALUES (" + at + ", 'v')");
      Thread.sleep(4000);
      ask("SELECT COUNT(*) FROM fleeting");
      run("UPSERT INTO fleeting VALUES (100, 'young')");
      say("cells after a compaction", () -> {
        compact(admin, "FLEETING");
        int rows = 0;
        try (Table table = hbase.getTable(TableName.valueOf("FLEETING"));
          ResultScanner scanner = table.getScanner(new Scan().setRaw(true).readAllVersions())) {
          while (scanner.next() != null) rows++;
        }
        return rows <= 1;
      });
      run("UPSERT INTO customers (name, city) VALUES ('c1', 'elsewhere')");
      run("DELETE FROM customers WHERE name = 'c2'");
      say("compacted", () -> {
        compact(admin, "CUSTOMERS");
        return "done";
      });
      ask("SELECT name, city, zip FROM customers ORDER BY name");
      run("ALTER TABLE orders SET GUIDE_POSTS_WIDTH = 2000");
      run("UPDATE STATISTICS orders");
      ask("SELECT PHYSICAL_NAME, COLUMN_FAMILY, COUNT(*), SUM(GUIDE_POSTS_ROW_COUNT) FROM SYSTEM.STATS GROUP BY PHYSICAL_NAME, COLUMN_FAMILY "
        + "ORDER BY PHYSICAL_NAME");
      run("UPSERT INTO orders (id, line, customer, amount) SELECT id + 2000, line, customer, amount FROM orders WHERE id < 1000");
      say("compacted", () -> {
        compact(admin, "ORDERS");
        Thread.sleep(3000); // statistics are written behind the compaction
        return "done";
      });
      ask("SELECT PHYSICAL_NAME, COLUMN_FAMILY, COUNT(*), SUM(GUIDE_POSTS_ROW_COUNT) FROM SYSTEM.STATS WHERE PHYSICAL_NAME = 'ORDERS' "
        + "GROUP BY PHYSICAL_NAME, COLUMN_FAMILY");
      ask("SELECT COUNT(*), SUM(amount) FROM orders");
      ask("SELECT COUNT(*) FROM by_customer");
    }
  }

  /** The same table, created and dropped: the coprocessor of the catalog compares timestamps that it has written itself. */
  private static void again() {
    for (String options : new String[] { "", " UPDATE_CACHE_FREQUENCY=10", " UPDATE_CACHE_FREQUENCY=NEVER" }) {
      for (int round = 0; round < 3; round++) {
        run("CREATE TABLE again (k VARCHAR PRIMARY KEY, v VARCHAR)" + options);
        run("UPSERT INTO again VALUES ('a', '" + round + "')");
        ask("SELECT * FROM again");
        run("DROP TABLE again");
      }
    }
  }

  /** Filters that send each family of a table to rows of its own. */
  private static void skipScans() {
    for (int families = 1; families <= 2; families++) {
      String table = "skip" + families;
      run("CREATE TABLE " + table + " (k1 VARCHAR NOT NULL, k2 INTEGER NOT NULL, a.v1 VARCHAR, " + (families == 2 ? "b" : "a")
        + ".v2 VARCHAR, CONSTRAINT pk PRIMARY KEY (k1, k2))");
      say("UPSERT 200 rows", () -> {
        try (PreparedStatement upsert = connection.prepareStatement("UPSERT INTO " + table + " VALUES (?, ?, ?, ?)")) {
          for (int at = 0; at < 200; at++) {
            upsert.setString(1, String.valueOf((char) ('a' + at / 20)));
            upsert.setInt(2, at % 20);
            upsert.setString(3, "x" + at % 20);
            upsert.setString(4, at % 3 == 0 ? null : "y" + at % 20);
            upsert.executeUpdate();
          }
        }
        connection.commit();
        return "done";
      });
      for (String where : new String[] { "k1 IN ('b', 'e', 'h')", "k2 IN (3, 17)", "k1 IN ('b', 'e', 'h') AND k2 IN (3, 17)",
        "k1 >= 'c' AND k1 < 'f' AND k2 = 5", "(k1, k2) IN (('b', 1), ('e', 2))", "k1 IN ('c', 'i') AND k2 > 15 AND v2 IS NOT NULL" }) {
        ask("SELECT k1, k2, v1, v2 FROM " + table + " WHERE " + where);
        ask("SELECT k1, k2, v2 FROM " + table + " WHERE " + where + " ORDER BY k1 DESC, k2 DESC");
      }
      ask("SELECT COUNT(*), COUNT(v1), COUNT(v2) FROM " + table + " WHERE k2 IN (3, 6, 17)");
    }
  }

  public static void main(String[] arguments) throws Exception {
    String[] address = arguments[0].split(":");
    say("connect", () -> {
      Properties properties = new Properties();
      // Between two passes over a table whose index is built. The second one is for a time range from the index's own timestamp on, which the
      // coprocessor of the catalog reads from the mutations that it has written.
      properties.setProperty("phoenix.index.population.wait.time", "300");
      connection = DriverManager.getConnection("jdbc:phoenix:" + address[0] + ":" + address[1] + ":/hbase", properties);
      return "connected";
    });
    if (connection == null) System.exit(1);
    run("CREATE TABLE orders (id BIGINT NOT NULL, line INTEGER NOT NULL, customer VARCHAR, amount DECIMAL(10,2), placed DATE "
      + "CONSTRAINT pk PRIMARY KEY (id, line)) SALT_BUCKETS=3");
    say("UPSERT 300 rows", () -> {
      connection.setAutoCommit(false);
      try (PreparedStatement upsert = connection.prepareStatement("UPSERT INTO orders VALUES (?, ?, ?, ?, ?)")) {
        for (int at = 0; at < 300; at++) {
          upsert.setLong(1, at / 3);
          upsert.setInt(2, at % 3);
          upsert.setString(3, "c" + at % 7);
          upsert.setBigDecimal(4, new java.math.BigDecimal(at).movePointLeft(1));
          upsert.setDate(5, new java.sql.Date(1_700_000_000_000L + at * 86_400_000L));
          upsert.executeUpdate();
        }
      }
      connection.commit();
      return "done";
    });
    ask("SELECT COUNT(*) FROM orders");
    ask("SELECT customer, COUNT(*), SUM(amount), MAX(placed) FROM orders GROUP BY customer ORDER BY customer");
    ask("SELECT id, line, customer, amount FROM orders WHERE id = 42 ORDER BY line");
    ask("SELECT id, line FROM orders WHERE customer = 'c3' AND amount > 25 ORDER BY id, line LIMIT 5");
    ask("SELECT id, line FROM orders WHERE id IN (3, 50, 97) ORDER BY id DESC, line");
    ask("SELECT COUNT(DISTINCT customer), AVG(amount) FROM orders WHERE line = 1");
    ask("SELECT id, SUM(amount) s FROM orders GROUP BY id HAVING SUM(amount) > 88 ORDER BY s DESC LIMIT 3");
    run("DELETE FROM orders WHERE id = 42");
    ask("SELECT COUNT(*) FROM orders");
    run("UPSERT INTO orders (id, line, customer, amount) SELECT id + 1000, line, customer, amount * 2 FROM orders WHERE id < 5");
    ask("SELECT id, SUM(amount) FROM orders WHERE id >= 1000 GROUP BY id ORDER BY id");
    run("CREATE SEQUENCE numbers START WITH 10 INCREMENT BY 5 CACHE 3");
    for (int at = 0; at < 5; at++) ask("SELECT NEXT VALUE FOR numbers");
    run("CREATE TABLE counters (name VARCHAR PRIMARY KEY, n BIGINT)");
    for (int at = 0; at < 3; at++) run("UPSERT INTO counters VALUES ('a', 1) ON DUPLICATE KEY UPDATE n = n + 10");
    ask("SELECT * FROM counters");
    run("CREATE TABLE customers (name VARCHAR PRIMARY KEY, city VARCHAR)");
    for (int at = 0; at < 7; at++) run("UPSERT INTO customers VALUES ('c" + at + "', 'city" + at % 2 + "')");
    ask("SELECT c.city, COUNT(*), SUM(o.amount) FROM orders o JOIN customers c ON o.customer = c.name GROUP BY c.city ORDER BY c.city");
    run("CREATE INDEX by_customer ON orders (customer) INCLUDE (amount)");
    ask("SELECT SUM(amount) FROM orders WHERE customer = 'c5'");
    ask("SELECT COUNT(*) FROM by_customer");
    run("UPSERT INTO orders (id, line, customer, amount) VALUES (5000, 0, 'c5', 7)");
    run("DELETE FROM orders WHERE id = 1000");
    ask("SELECT COUNT(*) FROM by_customer");
    ask("SELECT SUM(amount) FROM orders WHERE customer = 'c5'");
    run("CREATE VIEW large AS SELECT * FROM orders WHERE amount > 20");
    ask("SELECT COUNT(*) FROM large");
    run("ALTER TABLE customers ADD zip VARCHAR");
    run("UPSERT INTO customers (name, zip) VALUES ('c1', '8000')");
    ask("SELECT name, city, zip FROM customers WHERE name = 'c1'");
    run("DROP VIEW large");
    run("DROP TABLE counters");
    ask("SELECT TABLE_NAME FROM SYSTEM.CATALOG WHERE COLUMN_NAME IS NULL AND COLUMN_FAMILY IS NULL AND TABLE_SCHEM IS NULL ORDER BY TABLE_NAME");
    stores(address);
    again();
    skipScans();
    connection.close();
    System.exit(0);
  }
}
