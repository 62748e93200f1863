package stele.rivals.hbase;

import java.nio.ByteBuffer;
import java.security.MessageDigest;
import java.util.HexFormat;
import org.apache.hadoop.hbase.Cell;
import org.apache.hadoop.hbase.TableName;
import org.apache.hadoop.hbase.client.Admin;
import org.apache.hadoop.hbase.client.Connection;
import org.apache.hadoop.hbase.client.ConnectionFactory;
import org.apache.hadoop.hbase.client.Result;
import org.apache.hadoop.hbase.client.ResultScanner;
import org.apache.hadoop.hbase.client.Scan;
import org.apache.hadoop.hbase.client.Table;

/**
 * What HBase's own client finds in a table: {@code Digest HOST:PORT TABLE [VERSIONS]}. Prints one line,
 * {@code rows=N cells=N value_bytes=N sha256=HEX}, to hold against what another client finds.
 *
 * <p>The digest covers all cells in scan order; for each cell row, family, qualifier and value, each preceded by its
 * length as four bytes, big-endian. Timestamps are left out, for the server may have chosen them. VERSIONS is how many
 * versions of a cell are read, by default one.
 */
public final class Digest {
  private static final int ROWS_PER_FETCH = 1_000;
  private static final long BYTES_PER_FETCH = 2L << 20;

  private final MessageDigest sha256;
  private final ByteBuffer length = ByteBuffer.allocate(Integer.BYTES);
  private long rows;
  private long cells;
  private long valueBytes;

  private Digest() throws Exception {
    sha256 = MessageDigest.getInstance("SHA-256");
  }

  public static void main(String[] arguments) throws Exception {
    if (arguments.length < 2 || arguments.length > 3) {
      System.err.println("usage: Digest HOST:PORT TABLE [VERSIONS]");
      System.exit(2);
    }
    TableName name = TableName.valueOf(arguments[1]);
    Scan scan = new Scan()
        .setCaching(ROWS_PER_FETCH)
        .setMaxResultSize(BYTES_PER_FETCH)
        .setCacheBlocks(false)
        .readVersions(arguments.length == 3 ? Integer.parseInt(arguments[2]) : 1);
    Digest digest = new Digest();
    try (Connection connection = ConnectionFactory.createConnection(Cluster.client(arguments[0]));
        Admin admin = connection.getAdmin()) {
      if (!admin.tableExists(name)) {
        System.err.println("no such table: " + name);
        System.exit(1);
      }
      try (Table table = connection.getTable(name);
          ResultScanner results = table.getScanner(scan)) {
        for (Result result : results) {
          digest.row(result);
        }
      }
    }
    System.out.println(digest.line());
  }

  private void row(Result result) {
    rows++;
    for (Cell cell : result.rawCells()) {
      cells++;
      valueBytes += cell.getValueLength();
      part(cell.getRowArray(), cell.getRowOffset(), cell.getRowLength());
      part(cell.getFamilyArray(), cell.getFamilyOffset(), cell.getFamilyLength());
      part(cell.getQualifierArray(), cell.getQualifierOffset(), cell.getQualifierLength());
      part(cell.getValueArray(), cell.getValueOffset(), cell.getValueLength());
    }
  }

  private void part(byte[] bytes, int from, int count) {
    length.clear();
    sha256.update(length.putInt(count).array());
    sha256.update(bytes, from, count);
  }

  private String line() {
    return "rows=" + rows + " cells=" + cells + " value_bytes=" + valueBytes
        + " sha256=" + HexFormat.of().formatHex(sha256.digest());
  }
}
