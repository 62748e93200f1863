package stele.clients.hbase;

import java.util.Arrays;
import org.apache.hadoop.hbase.client.Append;
import org.apache.hadoop.hbase.client.Delete;
import org.apache.hadoop.hbase.client.Get;
import org.apache.hadoop.hbase.client.Increment;
import org.apache.hadoop.hbase.client.Put;
import org.apache.hadoop.hbase.client.Scan;
import org.apache.hadoop.hbase.util.Bytes;

/** Requests from short texts. A column is {@code family:qualifier}, a cell {@code family:qualifier=value}. */
final class Cells {
  private Cells() {}

  /** Bytes of a text, in which {@code \xNN} is one byte. */
  static byte[] b(String text) {
    return Bytes.toBytesBinary(text);
  }

  static byte[][] all(String... texts) {
    return Arrays.stream(texts).map(Cells::b).toArray(byte[][]::new);
  }

  static byte[] family(String column) {
    return b(column.contains(":") ? column.substring(0, column.indexOf(':')) : column);
  }

  static byte[] qualifier(String column) {
    int end = column.indexOf('=');
    return b(column.substring(column.indexOf(':') + 1, end < 0 ? column.length() : end));
  }

  private static byte[] value(String cell) {
    return b(cell.substring(cell.indexOf('=') + 1));
  }

  /** A put of cells at one timestamp. */
  static Put put(String row, long timestamp, String... cells) {
    Put put = new Put(b(row));
    for (String cell : cells) {
      put.addColumn(family(cell), qualifier(cell), timestamp, value(cell));
    }
    return put;
  }

  /** A put at the server's time. */
  static Put put(String row, String... cells) {
    Put put = new Put(b(row));
    for (String cell : cells) {
      put.addColumn(family(cell), qualifier(cell), value(cell));
    }
    return put;
  }

  /** A get of columns, or of families, which have no colon. */
  static Get get(String row, String... columns) {
    Get get = new Get(b(row));
    for (String column : columns) {
      if (column.contains(":")) {
        get.addColumn(family(column), qualifier(column));
      } else {
        get.addFamily(b(column));
      }
    }
    return get;
  }

  /** A scan of columns, or of families, which have no colon. */
  static Scan scan(String... columns) {
    Scan scan = new Scan();
    for (String column : columns) {
      if (column.contains(":")) {
        scan.addColumn(family(column), qualifier(column));
      } else {
        scan.addFamily(b(column));
      }
    }
    return scan;
  }

  static Delete delete(String row) {
    return new Delete(b(row));
  }

  /** Increments of one amount. */
  static Increment increment(String row, long amount, String... columns) {
    Increment increment = new Increment(b(row));
    for (String column : columns) {
      increment.addColumn(family(column), qualifier(column), amount);
    }
    return increment;
  }

  static Append append(String row, String... cells) {
    Append append = new Append(b(row));
    for (String cell : cells) {
      append.addColumn(family(cell), qualifier(cell), value(cell));
    }
    return append;
  }
}
