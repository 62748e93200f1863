package stele.clients.hbase;

import static stele.clients.hbase.Cells.b;

import java.io.IOException;
import java.nio.ByteBuffer;
import java.security.MessageDigest;
import java.util.HexFormat;
import java.util.Random;
import org.apache.hadoop.hbase.Cell;
import org.apache.hadoop.hbase.CellUtil;
import org.apache.hadoop.hbase.TableName;
import org.apache.hadoop.hbase.client.Admin;
import org.apache.hadoop.hbase.client.BufferedMutator;
import org.apache.hadoop.hbase.client.Connection;
import org.apache.hadoop.hbase.client.ConnectionFactory;
import org.apache.hadoop.hbase.client.Put;
import org.apache.hadoop.hbase.client.Result;
import org.apache.hadoop.hbase.client.ResultScanner;
import org.apache.hadoop.hbase.client.Scan;
import org.apache.hadoop.hbase.client.Table;

/**
 * One half of a table of which another client writes the other one: {@code Halves write HOST:PORT TABLE ROWS} waits for
 * the table, writes rows and splits it meanwhile; {@code Halves digest HOST:PORT TABLE} prints rows, cells and the digest of
 * {@code stele-bench digest}.
 */
public final class Halves {
  private static final String FAMILY = "f";
  private static final int SPLITS = 8;
  private static final int VALUE_BYTES = 100;

  private Halves() {}

  public static void main(String[] arguments) throws Exception {
    if (arguments.length < 3) {
      System.err.println("usage: Halves write HOST:PORT TABLE ROWS | Halves digest HOST:PORT TABLE");
      System.exit(2);
    }
    TableName name = TableName.valueOf(arguments[2]);
    try (Connection connection = ConnectionFactory.createConnection(Transcript.configuration(arguments[1]));
        Admin admin = connection.getAdmin()) {
      switch (arguments[0]) {
        case "write" -> write(connection, admin, name, Integer.parseInt(arguments[3]));
        case "digest" -> digest(connection, name);
        default -> throw new IllegalArgumentException(arguments[0]);
      }
    }
    System.exit(0);
  }

  private static void write(Connection connection, Admin admin, TableName name, int rows) throws Exception {
    if (!Case.until(() -> admin.tableExists(name))) {
      throw new IOException(name + " is not made");
    }
    Random random = new Random(7);
    byte[] value = new byte[VALUE_BYTES];
    try (BufferedMutator mutator = connection.getBufferedMutator(name)) {
      for (int i = 0; i < rows; i++) {
        if (i % (rows / SPLITS + 1) == 0) {
          split(admin, name, i / (rows / SPLITS + 1));
        }
        random.nextBytes(value);
        // Seventeen digits: the other half has sixteen.
        byte[] row = b(String.format("%016xh", random.nextLong()));
        mutator.mutate(new Put(row).addColumn(b(FAMILY), b("h"), 1_000L + i, value));
      }
    }
    System.out.println("wrote " + rows + " rows; " + admin.getRegions(name).size() + " regions");
  }

  /** Splits in the middle of the region that has the keys of an eighth. */
  private static void split(Admin admin, TableName name, int number) throws Exception {
    int before = admin.getRegions(name).size();
    admin.split(name, b(String.format("%x8", 2 * number)));
    if (!Case.until(() -> admin.getRegions(name).size() > before)) {
      throw new IOException("the table was not split");
    }
  }

  private static void digest(Connection connection, TableName name) throws Exception {
    MessageDigest digest = MessageDigest.getInstance("SHA-256");
    long rows = 0;
    long cells = 0;
    try (Table table = connection.getTable(name);
        ResultScanner scanner = table.getScanner(new Scan().setCaching(1_000))) {
      for (Result row : scanner) {
        rows++;
        for (Cell cell : row.rawCells()) {
          cells++;
          for (byte[] part : new byte[][] {CellUtil.cloneRow(cell), CellUtil.cloneFamily(cell),
              CellUtil.cloneQualifier(cell), CellUtil.cloneValue(cell)}) {
            digest.update(ByteBuffer.allocate(4).putInt(part.length).flip());
            digest.update(part);
          }
        }
      }
    }
    System.out.println("rows " + rows + " cells " + cells + " sha256 " + HexFormat.of().formatHex(digest.digest()));
  }
}
