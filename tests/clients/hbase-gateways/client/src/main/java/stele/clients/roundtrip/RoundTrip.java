package stele.clients.roundtrip;

import java.util.ArrayList;
import java.util.List;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.hbase.CompareOperator;
import org.apache.hadoop.hbase.HBaseConfiguration;
import org.apache.hadoop.hbase.TableName;
import org.apache.hadoop.hbase.client.Admin;
import org.apache.hadoop.hbase.client.Append;
import org.apache.hadoop.hbase.client.CheckAndMutate;
import org.apache.hadoop.hbase.client.ColumnFamilyDescriptorBuilder;
import org.apache.hadoop.hbase.client.Connection;
import org.apache.hadoop.hbase.client.ConnectionFactory;
import org.apache.hadoop.hbase.client.Delete;
import org.apache.hadoop.hbase.client.Get;
import org.apache.hadoop.hbase.client.Increment;
import org.apache.hadoop.hbase.client.Put;
import org.apache.hadoop.hbase.client.Result;
import org.apache.hadoop.hbase.client.ResultScanner;
import org.apache.hadoop.hbase.client.Scan;
import org.apache.hadoop.hbase.client.Table;
import org.apache.hadoop.hbase.client.TableDescriptorBuilder;
import org.apache.hadoop.hbase.filter.QualifierFilter;
import org.apache.hadoop.hbase.filter.BinaryComparator;
import org.apache.hadoop.hbase.util.Bytes;

/**
 * Makes, writes, reads and drops a table with whatever client is on the class path: {@code RoundTrip NAME=VALUE...}, the
 * client's settings.
 */
public final class RoundTrip {
  private static final byte[] FAMILY = Bytes.toBytes("f");
  private static final byte[] COLUMN = Bytes.toBytes("q");
  private static final int ROWS = 1_000;

  private RoundTrip() {}

  public static void main(String[] arguments) throws Exception {
    Configuration configuration = HBaseConfiguration.create();
    for (String argument : arguments) {
      String[] pair = argument.split("=", 2);
      configuration.set(pair[0], pair[1]);
    }
    TableName name = TableName.valueOf("round_trip");
    try (Connection connection = ConnectionFactory.createConnection(configuration);
        Admin admin = connection.getAdmin()) {
      drop(admin, name);
      admin.createTable(TableDescriptorBuilder.newBuilder(name).setColumnFamily(ColumnFamilyDescriptorBuilder
          .newBuilder(FAMILY).setMaxVersions(3).build()).build(), new byte[][] {row(ROWS / 3), row(ROWS / 2)});
      try (Table table = connection.getTable(name)) {
        rows(table);
        oneRow(table);
      }
      admin.flush(name);
      drop(admin, name);
      expect(!admin.tableExists(name), "a dropped table is gone");
    }
    System.exit(0);
  }

  private static void rows(Table table) throws Exception {
    List<Put> puts = new ArrayList<>();
    for (int i = 0; i < ROWS; i++) {
      puts.add(new Put(row(i)).addColumn(FAMILY, COLUMN, row(i)));
    }
    table.put(puts);
    expect(count(table, new Scan()) == ROWS, "all rows are scanned");
    expect(count(table, new Scan().setReversed(true).setLimit(70)) == 70, "a reversed scan has a limit");
    QualifierFilter none = new QualifierFilter(CompareOperator.NOT_EQUAL, new BinaryComparator(COLUMN));
    expect(count(table, new Scan().setFilter(none)) == 0, "a filter removes rows");
    List<Get> gets = List.of(new Get(row(1)), new Get(row(ROWS - 1)), new Get(row(ROWS)));
    Result[] found = table.get(gets);
    expect(!found[0].isEmpty() && !found[1].isEmpty() && found[2].isEmpty(), "a batch of gets finds what is there");
    table.delete(new Delete(row(1)));
    expect(!table.exists(new Get(row(1))), "a deleted row is gone");
  }

  private static void oneRow(Table table) throws Exception {
    byte[] row = Bytes.toBytes("one");
    Result added = table.increment(new Increment(row).addColumn(FAMILY, COLUMN, 5));
    expect(Bytes.toLong(added.value()) == 5, "an increment counts");
    table.append(new Append(row).addColumn(FAMILY, Bytes.toBytes("a"), Bytes.toBytes("x")));
    Put put = new Put(row).addColumn(FAMILY, Bytes.toBytes("b"), Bytes.toBytes("y"));
    CheckAndMutate absent = CheckAndMutate.newBuilder(row).ifNotExists(FAMILY, Bytes.toBytes("b")).build(put);
    expect(table.checkAndMutate(absent).isSuccess(), "a condition holds");
    expect(!table.checkAndMutate(absent).isSuccess(), "and holds no longer");
    expect(table.get(new Get(row)).size() == 3, "the row has three columns");
  }

  private static int count(Table table, Scan scan) throws Exception {
    int count = 0;
    try (ResultScanner scanner = table.getScanner(scan)) {
      while (scanner.next() != null) {
        count++;
      }
    }
    return count;
  }

  private static void drop(Admin admin, TableName name) throws Exception {
    if (admin.tableExists(name)) {
      if (admin.isTableEnabled(name)) {
        admin.disableTable(name);
      }
      admin.deleteTable(name);
    }
  }

  private static byte[] row(int i) {
    return Bytes.toBytes(String.format("%06d", i));
  }

  private static void expect(boolean holds, String fact) {
    if (!holds) {
      throw new IllegalStateException("not so: " + fact);
    }
  }
}
