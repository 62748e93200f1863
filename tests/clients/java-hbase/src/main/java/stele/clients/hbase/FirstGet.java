package stele.clients.hbase;

import static stele.clients.hbase.Cells.b;

import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.hbase.TableName;
import org.apache.hadoop.hbase.client.Admin;
import org.apache.hadoop.hbase.client.ColumnFamilyDescriptorBuilder;
import org.apache.hadoop.hbase.client.Connection;
import org.apache.hadoop.hbase.client.ConnectionFactory;
import org.apache.hadoop.hbase.client.Get;
import org.apache.hadoop.hbase.client.Put;
import org.apache.hadoop.hbase.client.Table;
import org.apache.hadoop.hbase.client.TableDescriptorBuilder;

/**
 * The first get after the start of a server: {@code FirstGet make HOST:PORT} makes a table with a row;
 * {@code FirstGet wait HOST:PORT} prints {@code ready}, waits for a line, and tries to get the row until it has it. Then it prints the
 * milliseconds since the line.
 */
public final class FirstGet {
  private static final TableName TABLE = TableName.valueOf("first");
  private static final byte[] ROW = b("row");
  private static final int PAUSE_MS = 5;
  private static final int TRIES_BEFORE = 20;

  private FirstGet() {}

  public static void main(String[] arguments) throws Exception {
    if (arguments.length != 2) {
      System.err.println("usage: FirstGet make|wait HOST:PORT");
      System.exit(2);
    }
    Configuration configuration = Transcript.configuration(arguments[1]);
    if (arguments[0].equals("make")) {
      make(configuration);
    } else {
      await(configuration);
    }
    System.exit(0);
  }

  private static void make(Configuration configuration) throws IOException {
    try (Connection connection = ConnectionFactory.createConnection(configuration);
        Admin admin = connection.getAdmin();
        Table table = connection.getTable(TABLE)) {
      Case.drop(admin, TABLE);
      admin.createTable(
          TableDescriptorBuilder.newBuilder(TABLE).setColumnFamily(ColumnFamilyDescriptorBuilder.of("f")).build());
      table.put(new Put(ROW).addColumn(b("f"), b("q"), b("value")));
    }
  }

  private static void await(Configuration configuration) throws Exception {
    configuration.setInt("hbase.client.retries.number", 0);
    configuration.setInt("hbase.rpc.timeout", 2_000);
    configuration.setInt("hbase.client.operation.timeout", 2_000);
    // The classes of the client are loaded before the time counts.
    for (int i = 0; i < TRIES_BEFORE; i++) {
      if (has(configuration)) {
        throw new IOException("the server runs already");
      }
    }
    System.out.println("ready");
    new BufferedReader(new InputStreamReader(System.in)).readLine();
    long begin = System.nanoTime();
    while (!has(configuration)) {
      Thread.sleep(PAUSE_MS);
    }
    System.out.println((System.nanoTime() - begin) / 1_000_000);
  }

  /** Whether a new client gets the row. */
  private static boolean has(Configuration configuration) {
    try (Connection connection = ConnectionFactory.createConnection(configuration);
        Table table = connection.getTable(TABLE)) {
      return !table.get(new Get(ROW)).isEmpty();
    } catch (IOException error) {
      return false;
    }
  }
}
