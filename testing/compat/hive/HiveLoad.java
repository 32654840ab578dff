// Files for a bulk load by Hive's output format (HiveHFileOutputFormat), as its tasks write them, loaded by HBase's tool. One file has
// rows of both regions. Fails if a row is not what was written.
//
//   java -cp JARS HiveLoad.java ZOOKEEPER DIR ROWS     DIR is a new directory for files

import java.util.Properties;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.hbase.HBaseConfiguration;
import org.apache.hadoop.hbase.TableName;
import org.apache.hadoop.hbase.client.*;
import org.apache.hadoop.hbase.tool.BulkLoadHFiles;
import org.apache.hadoop.hbase.util.Bytes;
import org.apache.hadoop.hive.hbase.HiveHFileOutputFormat;
import org.apache.hadoop.hive.ql.exec.FileSinkOperator.RecordWriter;
import org.apache.hadoop.io.Text;
import org.apache.hadoop.mapred.JobConf;
import org.apache.hadoop.util.Progressable;

public class HiveLoad {
  static final byte[] F = Bytes.toBytes("f");

  public static void main(String[] args) throws Exception {
    Configuration conf = HBaseConfiguration.create();
    conf.set("hbase.zookeeper.quorum", args[0].substring(0, args[0].lastIndexOf(':')));
    conf.set("hbase.zookeeper.property.clientPort", args[0].substring(args[0].lastIndexOf(':') + 1));
    conf.set("fs.defaultFS", "file:///");
    String dir = args[1];
    int rows = Integer.parseInt(args[2]);
    conf.set("hbase.fs.tmp.dir", dir + "/staging");
    JobConf job = new JobConf(conf);
    job.set("mapreduce.task.attempt.id", "attempt_200707121733_0003_m_000005_0");
    job.set("mapred.task.id", "attempt_200707121733_0003_m_000005_0");
    Properties table = new Properties();
    job.set("hbase.table.name", "hive");
    table.setProperty("hbase.table.name", "hive");
    table.setProperty("columns", "key,name,count");
    table.setProperty("columns.types", "string:string:string");
    table.setProperty("hfile.family.path", "file://" + dir + "/hfiles/f");
    HiveHFileOutputFormat format = new HiveHFileOutputFormat();
    RecordWriter writer = format.getHiveRecordWriter(job, new Path("file://" + dir + "/out"), Text.class, false, table, (Progressable) () -> {});
    for (int i = 0; i < rows; i++) writer.write(new Text(String.format("row-%06d\u0001name%d\u0001%d", i, i, i * 7)));
    writer.close(false);
    try (Connection c = ConnectionFactory.createConnection(conf); Admin admin = c.getAdmin()) {
      TableName name = TableName.valueOf("hive");
      admin.createTable(TableDescriptorBuilder.newBuilder(name).setColumnFamily(ColumnFamilyDescriptorBuilder.of("f")).build(), new byte[][] {Bytes.toBytes(String.format("row-%06d", rows / 2))});
      System.out.println("Hive: " + BulkLoadHFiles.create(conf).bulkLoad(name, new Path("file://" + dir + "/hfiles")).size() + " files are loaded");
      int count = 0;
      try (Table t = c.getTable(name); ResultScanner s = t.getScanner(new Scan())) {
        for (Result r : s) {
          int i = Integer.parseInt(Bytes.toString(r.getRow()).substring(4));
          String text = Bytes.toString(r.getValue(F, Bytes.toBytes("name"))), number = Bytes.toString(r.getValue(F, Bytes.toBytes("count")));
          if (text.equals("name" + i) && number.equals(String.valueOf(i * 7))) count++;
        }
      }
      System.out.println("Hive: " + count + " rows loaded in bulk");
      if (count != rows) {
        System.err.println(rows + " expected");
        Runtime.getRuntime().halt(1);
      }
    }
    System.out.flush();
    Runtime.getRuntime().halt(0);
  }
}
