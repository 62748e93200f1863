package stele.clients.hbase;

import static stele.clients.hbase.Cells.b;
import static stele.clients.hbase.Cells.family;
import static stele.clients.hbase.Cells.qualifier;

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import org.apache.hadoop.hbase.Cell;
import org.apache.hadoop.hbase.CellUtil;
import org.apache.hadoop.hbase.NamespaceDescriptor;
import org.apache.hadoop.hbase.TableName;
import org.apache.hadoop.hbase.client.Admin;
import org.apache.hadoop.hbase.client.CheckAndMutate;
import org.apache.hadoop.hbase.client.ColumnFamilyDescriptor;
import org.apache.hadoop.hbase.client.ColumnFamilyDescriptorBuilder;
import org.apache.hadoop.hbase.client.Connection;
import org.apache.hadoop.hbase.client.ConnectionFactory;
import org.apache.hadoop.hbase.client.Delete;
import org.apache.hadoop.hbase.client.Get;
import org.apache.hadoop.hbase.client.Increment;
import org.apache.hadoop.hbase.client.Put;
import org.apache.hadoop.hbase.client.Result;
import org.apache.hadoop.hbase.client.Table;
import org.apache.hadoop.hbase.client.TableDescriptorBuilder;
import org.apache.hadoop.hbase.util.Bytes;

/**
 * Carries out commands of a program in another language: {@code Lines HOST:PORT}. A command is a line of words on standard
 * input, and has one line of output.
 */
public final class Lines {
  private final Connection connection;

  private Lines(Connection connection) {
    this.connection = connection;
  }

  public static void main(String[] arguments) throws Exception {
    if (arguments.length != 1) {
      System.err.println("usage: Lines HOST:PORT");
      System.exit(2);
    }
    BufferedReader input = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
    try (Connection connection = ConnectionFactory.createConnection(Transcript.configuration(arguments[0]))) {
      Lines lines = new Lines(connection);
      for (String line = input.readLine(); line != null; line = input.readLine()) {
        System.out.println(lines.answer(line.split(" ")));
        System.out.flush();
      }
    }
    System.exit(0);
  }

  private String answer(String[] words) {
    try (Table table = connection.getTable(TableName.valueOf(words[1])); Admin admin = connection.getAdmin()) {
      return switch (words[0]) {
        case "namespace" -> namespace(admin, words[1]);
        case "create" -> create(admin, words);
        case "families" -> families(admin, words[1]);
        case "put" -> put(table, words);
        case "get" -> get(table, words);
        case "delete" -> delete(table, words);
        case "increment" -> {
          Increment increment = new Increment(b(words[2]));
          increment.addColumn(family(words[3]), qualifier(words[3]), Long.parseLong(words[4]));
          yield String.valueOf(Bytes.toLong(table.increment(increment).value()));
        }
        case "check" -> {
          Put put = new Put(b(words[2])).addColumn(family(words[3]), qualifier(words[3]), b(words[5]));
          yield String.valueOf(table.checkAndMutate(CheckAndMutate.newBuilder(b(words[2]))
              .ifEquals(family(words[3]), qualifier(words[3]), b(words[4])).build(put)).isSuccess());
        }
        default -> "unknown command";
      };
    } catch (Exception error) {
      return "fails with " + Show.chain(error);
    }
  }

  private static String namespace(Admin admin, String name) throws Exception {
    if (!List.of(admin.listNamespaces()).contains(name)) {
      admin.createNamespace(NamespaceDescriptor.create(name).build());
    }
    return "ok";
  }

  /** {@code create TABLE FAMILY:VERSIONS:SECONDS...} */
  private static String create(Admin admin, String[] words) throws Exception {
    TableDescriptorBuilder builder = TableDescriptorBuilder.newBuilder(TableName.valueOf(words[1]));
    for (int i = 2; i < words.length; i++) {
      String[] parts = words[i].split(":");
      builder.setColumnFamily(ColumnFamilyDescriptorBuilder.newBuilder(b(parts[0]))
          .setMaxVersions(Integer.parseInt(parts[1])).setTimeToLive(Integer.parseInt(parts[2])).build());
    }
    admin.createTable(builder.build());
    return "ok";
  }

  private static String families(Admin admin, String table) throws Exception {
    List<String> families = new ArrayList<>();
    for (ColumnFamilyDescriptor family : admin.getDescriptor(TableName.valueOf(table)).getColumnFamilies()) {
      families.add(family.getNameAsString() + ":" + family.getMaxVersions() + ":" + family.getMinVersions() + ":"
          + family.getTimeToLive());
    }
    return String.join(" ", families);
  }

  /** {@code put TABLE ROW COLUMN TIME VALUE}, where the time may be {@code -} for the server's. */
  private static String put(Table table, String[] words) throws Exception {
    Put put = new Put(b(words[2]));
    if (words[4].equals("-")) {
      put.addColumn(family(words[3]), qualifier(words[3]), b(words[5]));
    } else {
      put.addColumn(family(words[3]), qualifier(words[3]), Long.parseLong(words[4]), b(words[5]));
    }
    table.put(put);
    return "ok";
  }

  /** {@code get TABLE ROW VERSIONS} */
  private static String get(Table table, String[] words) throws Exception {
    Result result = table.get(new Get(b(words[2])).readVersions(Integer.parseInt(words[3])));
    List<String> cells = new ArrayList<>();
    if (!result.isEmpty()) {
      for (Cell cell : result.listCells()) {
        cells.add(Bytes.toString(CellUtil.cloneFamily(cell)) + ":" + Bytes.toStringBinary(CellUtil.cloneQualifier(cell))
            + "@" + cell.getTimestamp() + "=" + Bytes.toStringBinary(CellUtil.cloneValue(cell)));
      }
    }
    return String.join(" ", cells);
  }

  /** {@code delete TABLE ROW COLUMN TIME}: all versions up to that time. */
  private static String delete(Table table, String[] words) throws Exception {
    table.delete(new Delete(b(words[2])).addColumns(family(words[3]), qualifier(words[3]), Long.parseLong(words[4])));
    return "ok";
  }
}
