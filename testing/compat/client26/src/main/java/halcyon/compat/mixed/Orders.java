package halcyon.compat.mixed;

import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.hbase.HBaseConfiguration;
import org.apache.hadoop.hbase.client.Admin;
import org.apache.hadoop.hbase.client.BalanceRequest;
import org.apache.hadoop.hbase.client.BalanceResponse;
import org.apache.hadoop.hbase.client.Connection;
import org.apache.hadoop.hbase.client.ConnectionFactory;

/**
 * Orders to a master that the shell does not have.
 *
 * <pre>
 * HOST:PORT,... balance     runs the balancer until it has nothing to do; prints the moves of each round
 * HOST:PORT,... shutdown    stops the whole cluster
 * </pre>
 */
public final class Orders {
  private static final int ROUNDS_MAX = 30;
  private static final long PAUSE_MS = 2000; // servers report their load every 3 s

  private Orders() {}

  public static void main(String[] args) throws Exception {
    if (args.length != 2) {
      System.err.println("HOST:PORT,... balance|shutdown");
      System.exit(64);
    }
    Configuration conf = HBaseConfiguration.create();
    conf.set("hbase.zookeeper.quorum", args[0]);
    try (Connection connection = ConnectionFactory.createConnection(conf); Admin admin = connection.getAdmin()) {
      switch (args[1]) {
        case "balance" -> balance(admin);
        case "shutdown" -> admin.shutdown();
        default -> throw new IllegalArgumentException(args[1]);
      }
    }
    System.exit(0);
  }

  private static void balance(Admin admin) throws Exception {
    for (int round = 1; round <= ROUNDS_MAX; round++) {
      BalanceResponse response = admin.balance(BalanceRequest.defaultInstance());
      System.out.println("round " + round + ": " + (response.isBalancerRan() ? "" : "not run, ")
          + response.getMovesCalculated() + " moves calculated, " + response.getMovesExecuted() + " executed");
      if (response.isBalancerRan() && response.getMovesCalculated() == 0) {
        return;
      }
      Thread.sleep(PAUSE_MS);
    }
    throw new AssertionError("the balancer still moves regions after " + ROUNDS_MAX + " rounds");
  }
}
