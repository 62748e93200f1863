package stele.clients.hbase;

import static stele.clients.hbase.Cells.b;
import static stele.clients.hbase.Cells.put;
import static stele.clients.hbase.Cells.scan;

import java.util.List;
import org.apache.hadoop.hbase.Cell;
import org.apache.hadoop.hbase.CompareOperator;
import org.apache.hadoop.hbase.client.Put;
import org.apache.hadoop.hbase.client.Result;
import org.apache.hadoop.hbase.client.ResultScanner;
import org.apache.hadoop.hbase.client.Scan;
import org.apache.hadoop.hbase.client.Table;
import org.apache.hadoop.hbase.filter.BinaryComparator;
import org.apache.hadoop.hbase.filter.RowFilter;

/** Scans whose results may be parts of rows. */
final class Partials extends Area {
  Partials() {
    super("partials");
    add("batch", this::batch);
    add("batch-reversed", this::batchReversed);
    add("batch-versions", this::batchVersions);
    add("size", this::size);
    add("size-reversed", this::sizeReversed);
    add("allowed", this::allowed);
    add("allowed-with-batch", this::allowedWithBatch);
    add("wide", this::wide);
    add("cut-row-changes", this::cutRowChanges);
    add("large-rows", this::largeRows);
    add("cursor", this::cursor);
  }

  /** Rows of 5, 1 and 3 cells. */
  private static Table rows(Case c) throws Exception {
    Table table = c.create(Case.described(c.name, 3, "a", "b"), "r2");
    table.put(put("r1", 1, "a:1=v", "a:2=v", "a:3=v", "b:1=v", "b:2=v"));
    table.put(put("r2", 1, "b:1=v"));
    table.put(put("r3", 1, "a:1=v", "b:1=v", "b:2=v"));
    return table;
  }

  private void batch(Case c) throws Exception {
    Table table = rows(c);
    for (int batch : List.of(1, 2, 3, 5, 100)) {
      c.scan("batch-" + batch, table, scan().setBatch(batch));
    }
    c.scan("with-caching", table, scan().setBatch(2).setCaching(1));
    c.scan("with-limit", table, scan().setBatch(2).setLimit(1));
    c.scan("with-size", table, scan().setBatch(2).setMaxResultSize(1));
    c.scan("with-store-limit", table, scan().setBatch(2).setMaxResultsPerColumnFamily(1));
  }

  private void batchReversed(Case c) throws Exception {
    Table table = rows(c);
    c.scan("batch-2", table, scan().setBatch(2).setReversed(true));
    c.scan("with-size", table, scan().setBatch(2).setReversed(true).setMaxResultSize(1));
  }

  private void batchVersions(Case c) throws Exception {
    Table table = rows(c);
    table.put(put("r1", 2, "a:1=w", "a:3=w"));
    c.scan("all", table, scan().setBatch(3).readAllVersions());
  }

  private void size(Case c) throws Exception {
    Table table = rows(c);
    c.scan("whole-rows", table, scan().setMaxResultSize(1));
    c.scan("limit", table, scan().setMaxResultSize(1).setLimit(2));
    c.scan("caching", table, scan().setMaxResultSize(1).setCaching(2));
    c.scan("column", table, scan("b:2").setMaxResultSize(1));
  }

  private void sizeReversed(Case c) throws Exception {
    Table table = rows(c);
    c.scan("whole-rows", table, scan().setMaxResultSize(1).setReversed(true));
    c.scan("start", table, scan().setMaxResultSize(1).setReversed(true).withStartRow(b("r2")));
  }

  private void allowed(Case c) throws Exception {
    Table table = rows(c);
    c.scan("small", table, scan().setMaxResultSize(1).setAllowPartialResults(true));
    c.scan("reversed", table, scan().setMaxResultSize(1).setAllowPartialResults(true).setReversed(true));
    c.scan("large", table, scan().setAllowPartialResults(true));
    c.scan("limit", table, scan().setMaxResultSize(1).setAllowPartialResults(true).setLimit(2));
  }

  private void allowedWithBatch(Case c) throws Exception {
    Table table = rows(c);
    c.scan("small", table, scan().setMaxResultSize(1).setAllowPartialResults(true).setBatch(2));
    c.scan("large", table, scan().setAllowPartialResults(true).setBatch(2));
  }

  private void wide(Case c) throws Exception {
    Table table = c.create("f");
    Put put = new Put(b("r"));
    for (int i = 0; i < 1_000; i++) {
      put.addColumn(b("f"), b(String.format("%04d", i)), 1, b("value " + i));
    }
    table.put(put);
    table.put(put("s", 1, "f:q=v"));
    c.say("whole", shape(table, scan()));
    c.say("batch-300", shape(table, scan().setBatch(300)));
    c.say("size", shape(table, scan().setMaxResultSize(5_000)));
    c.say("store-limit", shape(table, scan().setMaxResultsPerColumnFamily(7)));
    c.say("store-offset", shape(table, scan().setRowOffsetPerColumnFamily(990)));
    c.say("parts-hold-all-cells", cells(table, scan().setMaxResultSize(5_000).setAllowPartialResults(true)));
  }

  /** Cells of each result. */
  private static String shape(Table table, Scan scan) throws Exception {
    StringBuilder sizes = new StringBuilder();
    try (ResultScanner scanner = table.getScanner(scan)) {
      for (Result result : scanner) {
        sizes.append(sizes.isEmpty() ? "" : " ").append(Show.bytes(result.getRow())).append('=').append(result.size());
      }
    }
    return sizes.toString();
  }

  /** Cells of all results, which must come in order and once. */
  private static String cells(Table table, Scan scan) throws Exception {
    int count = 0;
    boolean ordered = true;
    Cell last = null;
    try (ResultScanner scanner = table.getScanner(scan)) {
      for (Result result : scanner) {
        for (Cell cell : result.rawCells()) {
          ordered &= last == null || org.apache.hadoop.hbase.CellComparator.getInstance().compare(last, cell) < 0;
          last = cell;
          count++;
        }
      }
    }
    return count + (ordered ? " in order" : " out of order");
  }

  /** The second part of a row is of the same moment as the first. */
  private void cutRowChanges(Case c) throws Exception {
    Table table = rows(c);
    try (ResultScanner scanner = table.getScanner(scan().setMaxResultSize(1).setAllowPartialResults(true))) {
      c.say("first", scanner.next());
      table.put(put("r1", 2, "a:2=new", "a:25=new", "b:1=new"));
      c.rest("rest", scanner);
    }
  }

  private void largeRows(Case c) throws Exception {
    Table table = c.create("f");
    for (int row = 0; row < 4; row++) {
      Put put = new Put(b("r" + row));
      for (int i = 0; i < 12; i++) {
        put.addColumn(b("f"), b(String.format("%02d", i)), 1, new byte[100_000]);
      }
      table.put(put);
    }
    c.say("default", shape(table, scan()));
    c.say("reversed", shape(table, scan().setReversed(true)));
    c.say("size", shape(table, scan().setMaxResultSize(250_000)));
    c.say("caching", shape(table, scan().setCaching(1)));
  }

  /** Cursors come when a server pleases, so only the other results are said. */
  private void cursor(Case c) throws Exception {
    Table table = rows(c);
    RowFilter last = new RowFilter(CompareOperator.EQUAL, new BinaryComparator(b("r3")));
    Scan scan = scan().setNeedCursorResult(true).setMaxResultSize(1).setFilter(last);
    try (ResultScanner scanner = table.getScanner(scan)) {
      for (Result result = scanner.next(); result != null; result = scanner.next()) {
        if (!result.isCursor()) {
          c.say("row", result);
        }
      }
    }
  }
}
