// What applications of Spark do with HBase: files for a bulk load (HFileOutputFormat2), reading a table (TableInputFormat) and a
// snapshot (TableSnapshotInputFormat), and writing one (TableOutputFormat). Fails if a row is not what was written.
//
//   java -cp JARS SparkLoad.java ZOOKEEPER ROOT DIR ROWS     ROOT is the root directory, DIR a new one for files

import java.io.Serializable;
import java.util.Comparator;
import java.util.HashMap;
import java.util.List;
import java.util.stream.Collectors;
import java.util.stream.IntStream;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.hbase.HBaseConfiguration;
import org.apache.hadoop.hbase.KeyValue;
import org.apache.hadoop.hbase.TableName;
import org.apache.hadoop.hbase.client.*;
import org.apache.hadoop.hbase.io.ImmutableBytesWritable;
import org.apache.hadoop.hbase.mapreduce.HFileOutputFormat2;
import org.apache.hadoop.hbase.mapreduce.TableInputFormat;
import org.apache.hadoop.hbase.mapreduce.TableMapReduceUtil;
import org.apache.hadoop.hbase.mapreduce.TableOutputFormat;
import org.apache.hadoop.hbase.mapreduce.TableSnapshotInputFormat;
import org.apache.hadoop.hbase.spark.JavaHBaseContext;
import org.apache.hadoop.hbase.spark.KeyFamilyQualifier;
import org.apache.hadoop.hbase.tool.BulkLoadHFiles;
import org.apache.hadoop.hbase.util.Bytes;
import org.apache.hadoop.hbase.util.Pair;
import org.apache.hadoop.mapreduce.Job;
import org.apache.spark.Partitioner;
import org.apache.spark.SparkConf;
import org.apache.spark.api.java.JavaPairRDD;
import org.apache.spark.api.java.JavaSparkContext;
import org.apache.spark.sql.Dataset;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.SparkSession;
import scala.Tuple2;

public class SparkLoad {
  static final TableName LOADED = TableName.valueOf("loaded"), WRITTEN = TableName.valueOf("written");
  static final byte[] F = Bytes.toBytes("f"), G = Bytes.toBytes("g"), Q = Bytes.toBytes("q");

  static String row(int number) { return String.format("row-%08d", number); }

  static byte[] value(int number, int round) { return Bytes.toBytes(number + "/" + round + "/" + "v".repeat(number % 50)); }

  /** The region of a row, so that each task writes the files of one. */
  static class Regions extends Partitioner {
    final String[] starts;

    Regions(String[] starts) { this.starts = starts; }

    public int numPartitions() { return starts.length; }

    public int getPartition(Object row) {
      int region = 0;
      while (region + 1 < starts.length && starts[region + 1].compareTo((String) row) <= 0) region++;
      return region;
    }
  }

  static class Order implements Comparator<String>, Serializable {
    public int compare(String one, String other) { return one.compareTo(other); }
  }

  public static void main(String[] args) throws Exception {
    String dir = args[2];
    int rows = Integer.parseInt(args[3]);
    Configuration conf = HBaseConfiguration.create();
    conf.set("hbase.zookeeper.quorum", args[0].substring(0, args[0].lastIndexOf(':')));
    conf.set("hbase.zookeeper.property.clientPort", args[0].substring(args[0].lastIndexOf(':') + 1));
    conf.set("hbase.rootdir", "file://" + args[1]);
    conf.set("fs.defaultFS", "file:///");
    conf.set("hbase.fs.tmp.dir", dir + "/staging");
    // The splits of a snapshot say that they are empty.
    SparkConf settings = new SparkConf().setAppName("halcyon").setMaster("local[2]").set("spark.ui.enabled", "false").set("spark.hadoopRDD.ignoreEmptySplits", "false")
      .set("spark.driver.bindAddress", "127.0.0.1").set("spark.driver.host", "127.0.0.1").set("spark.local.dir", dir + "/spark")
      .set("spark.serializer", "org.apache.spark.serializer.KryoSerializer");
    try (JavaSparkContext spark = new JavaSparkContext(settings); Connection connection = ConnectionFactory.createConnection(conf);
        Admin admin = connection.getAdmin()) {
      for (TableName name : List.of(LOADED, WRITTEN)) {
        TableDescriptorBuilder table = TableDescriptorBuilder.newBuilder(name);
        table.setColumnFamily(ColumnFamilyDescriptorBuilder.of(F)).setColumnFamily(ColumnFamilyDescriptorBuilder.of(G));
        admin.createTable(table.build(), new byte[][] {Bytes.toBytes(row(rows / 4)), Bytes.toBytes(row(rows / 2)), Bytes.toBytes(row(rows / 4 * 3))});
      }
      for (int round = 1; round <= 2; round++) load(spark, connection, conf, dir, rows, round);
      check("rows loaded in bulk", rows, read(spark, conf, LOADED, 2));

      Configuration to = new Configuration(conf);
      to.set(TableOutputFormat.OUTPUT_TABLE, WRITTEN.getNameAsString());
      Job job = Job.getInstance(to);
      job.setOutputFormatClass(TableOutputFormat.class);
      numbers(spark, rows).mapToPair(number -> new Tuple2<>(new ImmutableBytesWritable(),
        (Mutation) new Put(Bytes.toBytes(row(number))).addColumn(F, Q, value(number, 2)).addColumn(G, Q, value(number, 2))))
        .saveAsNewAPIHadoopDataset(job.getConfiguration());
      check("rows written", rows, read(spark, conf, WRITTEN, 2));

      admin.snapshot("s", LOADED);
      connector(spark, conf, admin, dir, rows);

      Configuration scanned = new Configuration(conf);
      scanned.set(TableInputFormat.SCAN, TableMapReduceUtil.convertScanToString(new Scan()));
      Job of = Job.getInstance(scanned);
      TableSnapshotInputFormat.setInput(of, "s", new Path("file://" + dir + "/restored"));
      check("rows of a snapshot", rows, count(spark.newAPIHadoopRDD(of.getConfiguration(), TableSnapshotInputFormat.class, ImmutableBytesWritable.class, Result.class), 2));
    }
    System.out.flush();
    Runtime.getRuntime().halt(0);
  }

  static org.apache.spark.api.java.JavaRDD<Integer> numbers(JavaSparkContext spark, int rows) {
    return spark.parallelize(IntStream.range(0, rows).boxed().collect(Collectors.toList()), 8);
  }

  /** Sorted by Spark, written by tasks, loaded by HBase's tool. In the second round a region is split after the files were written. */
  static void load(JavaSparkContext spark, Connection connection, Configuration conf, String dir, int rows, int round) throws Exception {
    String out = "file://" + dir + "/hfiles-" + round;
    Job job = Job.getInstance(conf);
    try (Table table = connection.getTable(LOADED); RegionLocator regions = connection.getRegionLocator(LOADED); Admin admin = connection.getAdmin()) {
      HFileOutputFormat2.configureIncrementalLoad(job, table, regions);
      String[] starts = java.util.Arrays.stream(regions.getStartKeys()).map(Bytes::toString).toArray(String[]::new);
      JavaPairRDD<String, Integer> sorted = numbers(spark, rows).mapToPair(number -> new Tuple2<>(row(number), number))
        .repartitionAndSortWithinPartitions(new Regions(starts), new Order());
      sorted.flatMapToPair(each -> {
        byte[] row = Bytes.toBytes(each._1());
        return List.of(F, G).stream().map(family -> new Tuple2<>(new ImmutableBytesWritable(row),
          new KeyValue(row, family, Q, round, value(each._2(), round)))).iterator();
      }).saveAsNewAPIHadoopFile(out, ImmutableBytesWritable.class, KeyValue.class, HFileOutputFormat2.class, job.getConfiguration());
      if (round == 2) admin.splitRegionAsync(admin.getRegions(LOADED).get(0).getRegionName(), Bytes.toBytes(row(rows / 8))).get();
      int files = BulkLoadHFiles.create(conf).bulkLoad(LOADED, new Path(out)).size();
      System.out.println("round " + round + ": " + files + " files are loaded");
    }
  }

  /** The same by HBase's connector, with a data frame. */
  static void connector(JavaSparkContext spark, Configuration conf, Admin admin, String dir, int rows) throws Exception {
    JavaHBaseContext hbase = new JavaHBaseContext(spark, conf);
    for (TableName name : List.of(LOADED, WRITTEN)) admin.disableTable(name);
    for (TableName name : List.of(LOADED, WRITTEN)) admin.truncateTable(name, true);
    String out = "file://" + dir + "/hfiles-connector";
    for (byte[] family : List.of(F, G)) {
      String part = out + "-" + Bytes.toString(family);
      hbase.bulkLoad(numbers(spark, rows), LOADED,
        number -> new Pair<>(new KeyFamilyQualifier(Bytes.toBytes(row(number)), family, Q), value(number, 3)), part, new HashMap<>(), false, 1L << 30);
      BulkLoadHFiles.create(conf).bulkLoad(LOADED, new Path(part));
    }
    check("rows loaded in bulk, by the connector", rows, count(hbase.hbaseRDD(LOADED, new Scan()).mapToPair(each -> each), 3));
    hbase.bulkPut(numbers(spark, rows), WRITTEN, number -> new Put(Bytes.toBytes(row(number))).addColumn(F, Q, value(number, 3)).addColumn(G, Q, value(number, 3)));
    check("rows written, by the connector", rows, count(hbase.hbaseRDD(WRITTEN, new Scan()).mapToPair(each -> each), 3));
    Dataset<Row> frame = SparkSession.builder().getOrCreate().read().format("org.apache.hadoop.hbase.spark")
      .option("hbase.columns.mapping", "row STRING :key, v STRING f:q").option("hbase.table", WRITTEN.getNameAsString())
      .option("hbase.spark.pushdown.columnfilter", false).load(); // its filter is a class of the connector's, for region servers
    check("rows of a data frame", rows / 10, frame.filter("row < '" + row(rows / 10) + "' and v like '%/3/%'").count());
  }

  static long read(JavaSparkContext spark, Configuration conf, TableName name, int round) {
    Configuration from = new Configuration(conf);
    from.set(TableInputFormat.INPUT_TABLE, name.getNameAsString());
    from.set(TableInputFormat.SCAN_CACHEDROWS, "500");
    return count(spark.newAPIHadoopRDD(from, TableInputFormat.class, ImmutableBytesWritable.class, Result.class), round);
  }

  /** Rows whose two values are those of the round. */
  static long count(JavaPairRDD<ImmutableBytesWritable, Result> results, int round) {
    return results.filter(each -> {
      Result result = each._2();
      int number = Integer.parseInt(Bytes.toString(result.getRow()).substring(4));
      byte[] value = value(number, round);
      return result.size() == 2 && Bytes.equals(result.getValue(F, Q), value) && Bytes.equals(result.getValue(G, Q), value);
    }).count();
  }

  static void check(String what, long expected, long found) {
    System.out.println("Spark: " + found + " " + what);
    if (found != expected) {
      System.err.println(expected + " expected");
      Runtime.getRuntime().halt(1);
    }
  }
}
