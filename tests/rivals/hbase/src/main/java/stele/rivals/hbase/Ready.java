package stele.rivals.hbase;

import java.time.Duration;
import java.time.Instant;
import java.util.EnumSet;
import java.util.Set;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.hbase.ClusterMetrics;
import org.apache.hadoop.hbase.ServerName;
import org.apache.hadoop.hbase.TableName;
import org.apache.hadoop.hbase.client.Admin;
import org.apache.hadoop.hbase.client.Connection;
import org.apache.hadoop.hbase.client.ConnectionFactory;
import org.apache.hadoop.hbase.client.Result;
import org.apache.hadoop.hbase.client.ResultScanner;
import org.apache.hadoop.hbase.client.Scan;
import org.apache.hadoop.hbase.client.Table;
import org.apache.hadoop.hbase.util.Bytes;

/**
 * Waits until HBase serves: {@code Ready HOST:PORT SECONDS}.
 *
 * <p>Ready means that the address leads to an active master, a region server reports to it, no region waits for its
 * place or is said to be on a server that is dead, and the namespace that new tables need is there. Open ports alone
 * say none of that. Ends with 0 and one line on standard output, or with 1 and the last obstacle on standard error.
 */
public final class Ready {
  private static final Duration PAUSE = Duration.ofMillis(300);
  private static final int ATTEMPT_MS = 5_000;
  private static final byte[] INFO = Bytes.toBytes("info");
  private static final byte[] STATE = Bytes.toBytes("state");
  /** The server that has the region open, with its start code. */
  private static final byte[] SERVER = Bytes.toBytes("sn");

  private Ready() {}

  public static void main(String[] arguments) throws Exception {
    if (arguments.length != 2) {
      System.err.println("usage: Ready HOST:PORT SECONDS");
      System.exit(2);
    }
    Instant begin = Instant.now();
    Instant deadline = begin.plusSeconds(Long.parseLong(arguments[1]));
    String obstacle = "no attempt was made";
    while (Instant.now().isBefore(deadline)) {
      obstacle = attempt(arguments[0]);
      if (obstacle == null) {
        System.out.printf("ready after %d ms%n", Duration.between(begin, Instant.now()).toMillis());
        // Threads of a client whose first attempts failed may linger; the answer is known.
        System.exit(0);
      }
      Thread.sleep(PAUSE.toMillis());
    }
    System.err.println("not ready: " + obstacle);
    System.exit(1);
  }

  /** What is missing; null when nothing is. A fresh connection each time, so that no stale location is believed. */
  private static String attempt(String address) {
    Configuration configuration = Cluster.client(address);
    configuration.setInt("hbase.client.retries.number", 1);
    configuration.setInt("hbase.rpc.timeout", ATTEMPT_MS);
    configuration.setInt("hbase.client.operation.timeout", ATTEMPT_MS);
    configuration.setInt("hbase.client.meta.operation.timeout", ATTEMPT_MS);
    try (Connection connection = ConnectionFactory.createConnection(configuration);
        Admin admin = connection.getAdmin()) {
      ClusterMetrics metrics = admin.getClusterMetrics(EnumSet.of(
          ClusterMetrics.Option.MASTER,
          ClusterMetrics.Option.LIVE_SERVERS,
          ClusterMetrics.Option.REGIONS_IN_TRANSITION));
      if (metrics.getMasterName() == null) {
        return "no active master";
      }
      if (metrics.getLiveServerMetrics().isEmpty()) {
        return "no region server reports to the master";
      }
      if (!metrics.getRegionStatesInTransition().isEmpty()) {
        return "regions in transition: " + metrics.getRegionStatesInTransition();
      }
      // Creating a table asks the master for its namespace; until the master is through with its start, that fails.
      admin.getNamespaceDescriptor("default");
      return misplaced(connection, metrics.getLiveServerMetrics().keySet());
    } catch (Exception error) {
      return error.toString();
    }
  }

  /** Reads {@code hbase:meta}; after a crash it may still name a server that is dead. */
  private static String misplaced(Connection connection, Set<ServerName> live) throws Exception {
    int regions = 0;
    try (Table meta = connection.getTable(TableName.META_TABLE_NAME);
        ResultScanner rows = meta.getScanner(new Scan().addFamily(INFO))) {
      for (Result row : rows) {
        if (!row.containsColumn(INFO, STATE)) {
          continue;
        }
        regions++;
        String state = Bytes.toString(row.getValue(INFO, STATE));
        String server = Bytes.toString(row.getValue(INFO, SERVER));
        // Regions of a disabled table and the parents of a split are closed for good.
        if (state.equals("OPEN") && (server == null || !live.contains(ServerName.valueOf(server)))) {
          return Bytes.toStringBinary(row.getRow()) + " is assigned to " + server + ", which is not alive";
        }
      }
    }
    return regions == 0 ? "hbase:meta knows no region" : null;
  }
}
