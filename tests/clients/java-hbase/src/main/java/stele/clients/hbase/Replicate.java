package stele.clients.hbase;

import static stele.clients.hbase.Cells.b;
import static stele.clients.hbase.Cells.put;

import java.util.ArrayList;
import java.util.List;
import org.apache.hadoop.hbase.ServerName;
import org.apache.hadoop.hbase.TableName;
import org.apache.hadoop.hbase.client.Admin;
import org.apache.hadoop.hbase.client.Append;
import org.apache.hadoop.hbase.client.ColumnFamilyDescriptorBuilder;
import org.apache.hadoop.hbase.client.Connection;
import org.apache.hadoop.hbase.client.ConnectionFactory;
import org.apache.hadoop.hbase.client.Delete;
import org.apache.hadoop.hbase.client.Increment;
import org.apache.hadoop.hbase.client.Put;
import org.apache.hadoop.hbase.client.Result;
import org.apache.hadoop.hbase.client.ResultScanner;
import org.apache.hadoop.hbase.client.Scan;
import org.apache.hadoop.hbase.client.Table;
import org.apache.hadoop.hbase.client.TableDescriptor;
import org.apache.hadoop.hbase.client.TableDescriptorBuilder;
import org.apache.hadoop.hbase.replication.ReplicationPeerConfig;

/**
 * Adds a peer to one cluster, writes there, and waits for the same cells in the other: {@code Replicate SOURCE TARGET
 * QUORUM}, where QUORUM is the ZooKeeper of the target.
 */
public final class Replicate {
  private static final String PEER = "sink";
  private static final int ROWS = 2_000;

  private Replicate() {}

  public static void main(String[] arguments) throws Exception {
    if (arguments.length != 3) {
      System.err.println("usage: Replicate SOURCE TARGET QUORUM");
      System.exit(2);
    }
    TableName name = TableName.valueOf("replicated");
    TableDescriptor descriptor = TableDescriptorBuilder.newBuilder(name).setColumnFamily(
        ColumnFamilyDescriptorBuilder.newBuilder(b("f")).setMaxVersions(5).setScope(1).build()).build();
    try (Connection source = ConnectionFactory.createConnection(Transcript.configuration(arguments[0]));
        Connection target = ConnectionFactory.createConnection(Transcript.configuration(arguments[1]));
        Admin from = source.getAdmin();
        Admin to = target.getAdmin()) {
      if (from.listReplicationPeers().stream().anyMatch(peer -> peer.getPeerId().equals(PEER))) {
        from.removeReplicationPeer(PEER);
      }
      for (Admin admin : List.of(from, to)) {
        Case.drop(admin, name);
        admin.createTable(descriptor, Cells.all("r000700"));
      }
      rollLogs(from);
      from.addReplicationPeer(PEER,
          ReplicationPeerConfig.newBuilder().setClusterKey(arguments[2] + ":/hbase").build());
      try {
        write(source.getTable(name));
        List<String> wanted = cells(source.getTable(name));
        boolean same = Case.until(() -> cells(target.getTable(name)).equals(wanted));
        if (!same) {
          throw new IllegalStateException("the target has " + cells(target.getTable(name)).size() + " cells of "
              + wanted.size() + ", or others");
        }
        System.out.println(wanted.size() + " cells");
      } finally {
        from.removeReplicationPeer(PEER);
        Case.drop(from, name);
      }
      Case.drop(to, name);
    }
    System.exit(0);
  }

  /** A peer begins with the current log. In a new one, nothing that was written before comes to the target. */
  static void rollLogs(Admin admin) throws Exception {
    for (ServerName server : admin.getRegionServers()) {
      admin.rollWALWriter(server);
    }
  }

  private static void write(Table table) throws Exception {
    List<Put> puts = new ArrayList<>();
    for (int i = 0; i < ROWS; i++) {
      puts.add(put(row(i), "f:a=" + i, "f:b=x"));
    }
    table.put(puts);
    for (int i = 0; i < ROWS; i += 7) {
      table.put(put(row(i), 5, "f:a=old"));
      table.delete(i % 2 == 0 ? new Delete(b(row(i))) : new Delete(b(row(i))).addColumn(b("f"), b("b")));
    }
    for (int i = 0; i < 20; i++) {
      table.increment(new Increment(b("counter")).addColumn(b("f"), b("n"), i));
      table.append(new Append(b("text")).addColumn(b("f"), b("t"), b("x" + i)));
    }
  }

  private static String row(int i) {
    return String.format("r%06d", i);
  }

  /** Every version of every cell. */
  private static List<String> cells(Table table) throws Exception {
    List<String> cells = new ArrayList<>();
    try (ResultScanner scanner = table.getScanner(new Scan().readAllVersions())) {
      for (Result result : scanner) {
        result.listCells().forEach(cell -> cells.add(cell + "=" + Show.value(
            org.apache.hadoop.hbase.CellUtil.cloneValue(cell))));
      }
    }
    return cells;
  }
}
