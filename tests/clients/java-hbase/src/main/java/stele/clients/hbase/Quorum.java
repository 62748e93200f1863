package stele.clients.hbase;

import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.hbase.HBaseConfiguration;
import org.apache.hadoop.hbase.TableName;
import org.apache.hadoop.hbase.client.Admin;
import org.apache.hadoop.hbase.client.ColumnFamilyDescriptorBuilder;
import org.apache.hadoop.hbase.client.Connection;
import org.apache.hadoop.hbase.client.ConnectionFactory;
import org.apache.hadoop.hbase.client.Get;
import org.apache.hadoop.hbase.client.Put;
import org.apache.hadoop.hbase.client.ResultScanner;
import org.apache.hadoop.hbase.client.Scan;
import org.apache.hadoop.hbase.client.Table;
import org.apache.hadoop.hbase.client.TableDescriptorBuilder;
import org.apache.hadoop.hbase.util.Bytes;

/** A round trip of a client that is told a ZooKeeper quorum and nothing else: {@code Quorum HOST:PORT}. */
public final class Quorum {
  private static final byte[] FAMILY = Bytes.toBytes("f");
  private static final int ROWS = 100;

  private Quorum() {}

  public static void main(String[] arguments) throws Exception {
    if (arguments.length != 1) {
      System.err.println("usage: Quorum HOST:PORT");
      System.exit(2);
    }
    Configuration configuration = HBaseConfiguration.create();
    configuration.set("hbase.zookeeper.quorum", arguments[0]);
    TableName name = TableName.valueOf("quorum");
    try (Connection connection = ConnectionFactory.createConnection(configuration);
        Admin admin = connection.getAdmin()) {
      expect(admin.getClusterMetrics().getLiveServerMetrics().size() == 1, "one server lives");
      Case.drop(admin, name);
      admin.createTable(TableDescriptorBuilder.newBuilder(name).setColumnFamily(ColumnFamilyDescriptorBuilder.of(FAMILY))
          .build(), new byte[][] {row(ROWS / 2)});
      try (Table table = connection.getTable(name)) {
        for (int i = 0; i < ROWS; i++) {
          table.put(new Put(row(i)).addColumn(FAMILY, row(0), row(i)));
        }
        expect(Bytes.equals(table.get(new Get(row(7))).value(), row(7)), "a row has its value");
        int count = 0;
        try (ResultScanner scanner = table.getScanner(new Scan())) {
          while (scanner.next() != null) {
            count++;
          }
        }
        expect(count == ROWS, "all rows are scanned, and not " + count);
      }
      Case.drop(admin, name);
    }
  }

  private static byte[] row(int i) {
    return Bytes.toBytes(String.format("%03d", i));
  }

  private static void expect(boolean holds, String fact) {
    if (!holds) {
      throw new IllegalStateException("not so: " + fact);
    }
  }
}
