package stele.clients.hbase;

import java.io.IOException;
import java.util.ArrayList;
import java.util.List;
import java.util.Set;
import java.util.HashSet;
import java.util.concurrent.Callable;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.hbase.TableName;
import org.apache.hadoop.hbase.client.Admin;
import org.apache.hadoop.hbase.client.ColumnFamilyDescriptor;
import org.apache.hadoop.hbase.client.ColumnFamilyDescriptorBuilder;
import org.apache.hadoop.hbase.client.Connection;
import org.apache.hadoop.hbase.client.Get;
import org.apache.hadoop.hbase.client.Result;
import org.apache.hadoop.hbase.client.ResultScanner;
import org.apache.hadoop.hbase.client.Scan;
import org.apache.hadoop.hbase.client.Table;
import org.apache.hadoop.hbase.client.TableDescriptor;
import org.apache.hadoop.hbase.client.TableDescriptorBuilder;
import org.apache.hadoop.hbase.util.Bytes;

/** A case while it runs: its table, its lines, and the ways to say an observation. */
final class Case {
  /** Something that may throw and whose result does not matter. */
  interface Action {
    void run() throws Exception;
  }

  /** More lines than any case says; a scan that does not end must not fill the memory. */
  private static final int LINES_MAX = 2_000;
  private static final long PAUSE_MS = 50;
  private static final long PATIENCE_MS = 60_000;

  final Connection connection;
  /** The settings of {@link #connection}, to be copied for connections that differ in one. */
  final Configuration configuration;
  /** The table of the case. */
  final TableName name;
  private final String label;
  private final List<String> lines = new ArrayList<>();
  private final Set<String> steps = new HashSet<>();
  private final List<TableName> tables = new ArrayList<>();

  Case(String area, String name, Connection connection, Configuration configuration) {
    this.label = area + "." + name;
    this.name = TableName.valueOf((area + "_" + name).replace('-', '_'));
    this.connection = connection;
    this.configuration = configuration;
  }

  /** Runs the body, with no table of this case before and after. */
  void run(Area.Body body) {
    try {
      table(name);
      body.run(this);
    } catch (Throwable thrown) {
      say("ended", "by " + Show.chain(thrown));
      thrown.printStackTrace();
    }
    for (TableName table : tables) {
      try {
        drop(table);
      } catch (Exception error) {
        System.err.println(label + ": dropping " + table + ": " + error);
      }
    }
  }

  synchronized String text() {
    return String.join("", lines);
  }

  // Observations

  /** Says one observation. A step that is said again gets a number. */
  synchronized void say(String step, Object value) {
    String key = step;
    for (int i = 2; !steps.add(key); i++) {
      key = step + "~" + i;
    }
    if (lines.size() < LINES_MAX) {
      lines.add(label + "." + key + ": " + Show.value(value) + "\n");
    }
  }

  /** Says the exception's class and its message. */
  void fails(String step, Action action) {
    Throwable thrown = thrown(step, action);
    if (thrown != null) {
      say(step, "fails with " + Show.chain(thrown));
      say(step + ".message", Show.message(thrown));
    }
  }

  /** Says the exception's class only, because the message tells of the inside of a server. */
  void failsAs(String step, Action action) {
    Throwable thrown = thrown(step, action);
    if (thrown != null) {
      say(step, "fails with " + Show.chain(thrown));
    }
  }

  private Throwable thrown(String step, Action action) {
    try {
      action.run();
      say(step, "succeeds");
      return null;
    } catch (Throwable thrown) {
      return thrown;
    }
  }

  void get(String step, Table table, Get get) throws IOException {
    say(step, table.get(get));
  }

  /** Says each result of a scan and their number. */
  void scan(String step, Table table, Scan scan) throws IOException {
    try (ResultScanner scanner = table.getScanner(scan)) {
      rest(step, scanner);
    }
  }

  /** Says each result that is left. */
  void rest(String step, ResultScanner scanner) throws IOException {
    int count = 0;
    for (Result result = scanner.next(); result != null && count < LINES_MAX; result = scanner.next()) {
      say(step + "." + count++, result);
    }
    say(step, count + " results");
  }

  /** All that a table holds: every version and every marker. */
  void everything(String step, Table table) throws IOException {
    scan(step, table, new Scan().setRaw(true).readAllVersions());
  }

  // Tables

  Admin admin() throws IOException {
    return connection.getAdmin();
  }

  /** Another table of the case, with no such table there. */
  TableName table(TableName other) throws IOException {
    drop(other);
    tables.add(other);
    return other;
  }

  /** The same, named after the case. */
  TableName other(String suffix) throws IOException {
    return table(TableName.valueOf(name.getNameAsString() + "_" + suffix));
  }

  /** The case's table with these families, each with one version. */
  Table create(String... families) throws IOException {
    return versions(1, families);
  }

  /** The case's table with these families, each with so many versions. */
  Table versions(int versions, String... families) throws IOException {
    return create(described(name, versions, families));
  }

  Table create(TableDescriptor descriptor, String... splits) throws IOException {
    try (Admin admin = admin()) {
      if (splits.length == 0) {
        admin.createTable(descriptor);
      } else {
        admin.createTable(descriptor, Cells.all(splits));
      }
    }
    return connection.getTable(descriptor.getTableName());
  }

  static TableDescriptor described(TableName name, int versions, String... families) {
    TableDescriptorBuilder builder = TableDescriptorBuilder.newBuilder(name);
    for (String family : families) {
      builder.setColumnFamily(family(family, versions));
    }
    return builder.build();
  }

  static ColumnFamilyDescriptor family(String family, int versions) {
    return ColumnFamilyDescriptorBuilder.newBuilder(Bytes.toBytes(family)).setMaxVersions(versions).build();
  }

  private void drop(TableName table) throws IOException {
    try (Admin admin = admin()) {
      drop(admin, table);
    }
  }

  static void drop(Admin admin, TableName table) throws IOException {
    if (admin.tableExists(table)) {
      if (admin.isTableEnabled(table)) {
        admin.disableTable(table);
      }
      admin.deleteTable(table);
    }
  }

  /** Waits until the condition holds; whether it did in time. */
  static boolean until(Callable<Boolean> condition) throws Exception {
    long deadline = System.currentTimeMillis() + PATIENCE_MS;
    while (System.currentTimeMillis() < deadline) {
      if (condition.call()) {
        return true;
      }
      Thread.sleep(PAUSE_MS);
    }
    return false;
  }
}
