package stele.clients.hbase;

import java.io.IOException;
import org.apache.hadoop.hbase.TableName;
import org.apache.hadoop.hbase.client.Admin;
import org.apache.hadoop.hbase.client.CompactionState;
import org.apache.hadoop.hbase.client.Connection;
import org.apache.hadoop.hbase.client.Table;
import org.apache.hadoop.hbase.client.TableDescriptorBuilder;

/** The table of a sequence at one server. */
final class DrawnTable {
  final Admin admin;
  final TableName name;
  final Table table;
  private final Connection connection;

  DrawnTable(Connection connection, TableName name) throws IOException {
    this.connection = connection;
    this.admin = connection.getAdmin();
    this.name = name;
    this.table = connection.getTable(name);
  }

  void create(Schema schema) throws Exception {
    Case.drop(admin, name);
    TableDescriptorBuilder builder = TableDescriptorBuilder.newBuilder(name);
    builder.setColumnFamilies(schema.families());
    if (schema.splits().isEmpty()) {
      admin.createTable(builder.build());
    } else {
      admin.createTable(builder.build(), Cells.all(schema.splits().toArray(new String[0])));
    }
  }

  void flush() throws IOException {
    admin.flush(name);
  }

  /** Flushes and compacts, until that is done. */
  void compact(boolean major) throws Exception {
    flush();
    if (major) {
      admin.majorCompact(name);
    } else {
      admin.compact(name);
    }
    if (!Case.until(() -> admin.getCompactionState(name) == CompactionState.NONE)) {
      throw new IOException("a compaction does not end");
    }
  }

  /** Splits, until both regions serve; the regions. */
  String split(byte[] row) throws Exception {
    int before = admin.getRegions(name).size();
    admin.split(name, row);
    boolean done = Case.until(() -> admin.getRegions(name).size() > before && admin.isTableAvailable(name));
    connection.clearRegionLocationCache();
    return done ? Regions.ranges(admin, name) : "not split";
  }

  /** Its last use. */
  Void drop() throws IOException {
    try (admin; table) {
      Case.drop(admin, name);
    }
    return null;
  }
}
