package stele.clients.hbase;

import static stele.clients.hbase.Cells.b;
import static stele.clients.hbase.Cells.put;
import static stele.clients.hbase.Cells.scan;

import java.util.List;
import org.apache.hadoop.hbase.client.IsolationLevel;
import org.apache.hadoop.hbase.client.ResultScanner;
import org.apache.hadoop.hbase.client.Scan;
import org.apache.hadoop.hbase.client.Table;
import org.apache.hadoop.hbase.client.metrics.ScanMetrics;

/** Scans whose results are whole rows. */
final class Scans extends Area {
  Scans() {
    super("scans");
    add("forward", c -> limits(c, false));
    add("reversed", c -> limits(c, true));
    add("columns", this::columns);
    add("caching", this::caching);
    add("row-limits", this::rowLimits);
    add("prefix", this::prefix);
    add("versions", this::versions);
    add("times", this::times);
    add("raw", this::raw);
    add("empty", this::empty);
    add("single", this::single);
    add("hints", this::hints);
    add("old-settings", this::oldSettings);
    add("read-point", this::readPoint);
    add("renew", this::renew);
    add("renew-page", this::renewPage);
    add("metrics", this::metrics);
    add("closed-early", this::closedEarly);
    add("many-at-once", this::manyAtOnce);
    add("errors", this::errors);
  }

  /** Rows r0 to r9 in three regions, which begin at r3 and r6. */
  static Table tenRows(Case c) throws Exception {
    Table table = c.create(Case.described(c.name, 3, "f", "e"), "r3", "r6");
    for (int i = 0; i < 10; i++) {
      table.put(put("r" + i, 1, "f:q=v" + i, "f:p=w" + i, "e:q=x" + i));
    }
    return table;
  }

  private void limits(Case c, boolean reversed) throws Exception {
    Table table = tenRows(c);
    String low = reversed ? "r7" : "r2";
    String high = reversed ? "r2" : "r7";
    c.scan("all", table, scan("f:q").setReversed(reversed));
    c.scan("start", table, scan("f:q").setReversed(reversed).withStartRow(b(low)));
    c.scan("stop", table, scan("f:q").setReversed(reversed).withStopRow(b(high)));
    for (boolean start : List.of(true, false)) {
      for (boolean stop : List.of(true, false)) {
        c.scan((start ? "with" : "without") + "-start-" + (stop ? "with" : "without") + "-stop", table,
            scan("f:q").setReversed(reversed).withStartRow(b(low), start).withStopRow(b(high), stop));
      }
    }
    c.scan("between-rows", table,
        scan("f:q").setReversed(reversed).withStartRow(b(low + "5")).withStopRow(b(high + "5")));
    c.scan("at-region-limits", table, scan("f:q").setReversed(reversed).withStartRow(b(reversed ? "r6" : "r3"))
        .withStopRow(b(reversed ? "r3" : "r6")));
    c.scan("start-is-stop", table, scan("f:q").setReversed(reversed).withStartRow(b("r5")).withStopRow(b("r5"), true));
    c.scan("start-is-stop-exclusive", table,
        scan("f:q").setReversed(reversed).withStartRow(b("r5")).withStopRow(b("r5")));
    c.scan("crossed", table, scan("f:q").setReversed(reversed).withStartRow(b(high)).withStopRow(b(low)));
    c.scan("beyond", table, scan("f:q").setReversed(reversed).withStartRow(b(reversed ? "a" : "z")));
    c.scan("whole-rows", table, scan().setReversed(reversed).setLimit(2));
    c.scan("limit", table, scan("f:q").setReversed(reversed).setLimit(5));
    c.scan("caching", table, scan("f:q").setReversed(reversed).setCaching(2));
  }

  private void columns(Case c) throws Exception {
    Table table = tenRows(c);
    table.put(put("s", 1, "e:only=v"));
    c.scan("family", table, scan("e").withStartRow(b("r8")));
    c.scan("column", table, scan("f:p").withStartRow(b("r8")));
    c.scan("columns", table, scan("f:q", "e:only").withStartRow(b("r8")));
    c.scan("absent-column", table, scan("f:none"));
    try (ResultScanner scanner = table.getScanner(b("e"), b("only"))) {
      c.rest("of-column", scanner);
    }
    try (ResultScanner scanner = table.getScanner(b("e"))) {
      c.say("of-family", scanner.next(3));
    }
    c.scan("store-limit", table, scan().withStartRow(b("r9")).setMaxResultsPerColumnFamily(1));
    c.scan("store-offset", table, scan().withStartRow(b("r9")).setRowOffsetPerColumnFamily(1));
  }

  private void caching(Case c) throws Exception {
    Table table = tenRows(c);
    for (int caching : List.of(1, 3, 100)) {
      c.scan("caching-" + caching, table, scan("f:q").setCaching(caching));
      c.scan("size-" + caching, table, scan("f:q").setCaching(caching).setMaxResultSize(100));
    }
    try (ResultScanner scanner = table.getScanner(scan("f:q").setCaching(2))) {
      c.say("next-3", scanner.next(3));
      c.say("next-0", scanner.next(0));
      c.say("next-100", scanner.next(100));
      c.say("next-after-end", scanner.next());
    }
  }

  private void rowLimits(Case c) throws Exception {
    Table table = tenRows(c);
    for (int limit : List.of(1, 3, 4, 10, 11)) {
      c.scan("limit-" + limit, table, scan("f:q").setLimit(limit).setCaching(3));
    }
    c.scan("one-row", table, scan("f:q").setOneRowLimit());
    c.scan("one-row-from", table, scan("f:q").withStartRow(b("r55")).setOneRowLimit());
    c.scan("limit-with-size", table, scan("f:q").setLimit(4).setMaxResultSize(1));
  }

  private void prefix(Case c) throws Exception {
    Table table = c.create("f");
    for (String row : List.of("a", "ab", "abc", "ac", "b", "\\xFF", "\\xFFa", "\\xFF\\xFF")) {
      table.put(put(row, 1, "f:q=v"));
    }
    c.scan("ab", table, scan().setStartStopRowForPrefixScan(b("ab")));
    c.scan("a", table, scan().setStartStopRowForPrefixScan(b("a")));
    c.scan("high", table, scan().setStartStopRowForPrefixScan(b("\\xFF")));
    c.scan("none", table, scan().setStartStopRowForPrefixScan(b("x")));
  }

  private void versions(Case c) throws Exception {
    Table table = c.versions(4, "f");
    for (int i = 1; i <= 6; i++) {
      table.put(put("a", i, "f:q=v" + i));
      table.put(put("b", 7 - i, "f:q=v" + (7 - i), "f:p=w" + i));
    }
    c.scan("default", table, scan());
    c.scan("two", table, scan().readVersions(2));
    c.scan("all", table, scan().readAllVersions());
    c.scan("reversed", table, scan().readVersions(2).setReversed(true));
  }

  private void times(Case c) throws Exception {
    Table table = c.versions(5, "a", "b");
    for (int i = 1; i <= 4; i++) {
      table.put(put("r", i, "a:q=a" + i, "b:q=b" + i));
    }
    table.put(put("s", 2, "a:q=a2"));
    table.put(put("t", 9, "a:q=a9"));
    c.scan("range", table, scan().setTimeRange(2, 4));
    c.scan("range-all", table, scan().setTimeRange(2, 4).readAllVersions());
    c.scan("exact", table, scan().setTimestamp(2));
    c.scan("family-range", table, scan().readAllVersions().setColumnFamilyTimeRange(b("a"), 3, 4));
    c.scan("both", table, scan().setTimeRange(1, 3).setColumnFamilyTimeRange(b("b"), 4, 5));
  }

  private void raw(Case c) throws Exception {
    Table table = c.versions(2, "f");
    for (int i = 1; i <= 4; i++) {
      table.put(put("a", i, "f:q=v" + i));
    }
    table.put(put("b", 1, "f:q=v", "f:p=v"));
    table.delete(Cells.delete("a").addColumn(b("f"), b("q"), 4));
    table.delete(new org.apache.hadoop.hbase.client.Delete(b("b"), 9));
    c.scan("plain", table, scan().readAllVersions());
    c.everything("raw", table);
    c.scan("raw-three", table, scan().setRaw(true).readVersions(3));
    c.scan("raw-limit", table, scan().setRaw(true).readAllVersions().setLimit(1));
    c.scan("raw-reversed", table, scan().setRaw(true).readAllVersions().setReversed(true));
    c.failsAs("raw-column", () -> c.scan("raw-column-rows", table, scan("f:q").setRaw(true).readAllVersions()));
  }

  private void empty(Case c) throws Exception {
    Table table = c.create(Case.described(c.name, 1, "f"), "m");
    c.scan("forward", table, scan());
    c.scan("reversed", table, scan().setReversed(true));
    c.scan("limit", table, scan().setLimit(5));
    table.put(put("z", 1, "f:q=v"));
    c.scan("one-in-the-last-region", table, scan());
    c.scan("reversed-one", table, scan().setReversed(true));
  }

  private void single(Case c) throws Exception {
    Table table = c.create("f");
    table.put(put("r", 1, "f:q=v"));
    c.scan("forward", table, scan());
    c.scan("reversed", table, scan().setReversed(true));
    c.scan("as-get", table, new Scan(Cells.get("r")));
    c.scan("as-get-of-absent", table, new Scan(Cells.get("s")));
  }

  private void hints(Case c) throws Exception {
    Table table = tenRows(c);
    c.scan("no-cache", table, scan("f:q").setCacheBlocks(false).setLimit(1));
    c.scan("uncommitted", table, scan("f:q").setIsolationLevel(IsolationLevel.READ_UNCOMMITTED).setLimit(1));
    c.scan("pread", table, scan("f:q").setReadType(Scan.ReadType.PREAD).setLimit(1));
    c.scan("stream", table, scan("f:q").setReadType(Scan.ReadType.STREAM).setLimit(1));
    c.scan("on-demand", table, scan("f:q").setLoadColumnFamiliesOnDemand(true).setLimit(1));
    c.scan("priority", table, scan("f:q").setPriority(50).setLimit(1));
    c.scan("prefetch", table, scan("f:q").setAsyncPrefetch(true).setCaching(2));
    c.scan("attribute", table, scan("f:q").setAttribute("unknown", b("attribute")).setId("me").setLimit(1));
  }

  @SuppressWarnings("deprecation")
  private void oldSettings(Case c) throws Exception {
    Table table = tenRows(c);
    c.scan("small", table, scan("f:q").setSmall(true));
    c.scan("small-caching", table, scan("f:q").setSmall(true).setCaching(2));
    c.scan("small-reversed", table, scan("f:q").setSmall(true).setReversed(true).setCaching(4));
    c.scan("max-versions", table, scan("f:q").setMaxVersions(2).setLimit(1));
    c.scan("prefix", table, scan("f:q").setRowPrefixFilter(b("r4")));
  }

  /** A scanner sees its region as it was when the scanner came there. */
  private void readPoint(Case c) throws Exception {
    Table table = c.create("f");
    for (int i = 0; i < 5; i++) {
      table.put(put("r" + i, 1, "f:q=old"));
    }
    try (ResultScanner scanner = table.getScanner(scan().setCaching(1))) {
      c.say("first", scanner.next());
      table.put(put("r3", 2, "f:q=new"));
      table.put(put("r35", 2, "f:q=inserted"));
      table.delete(new org.apache.hadoop.hbase.client.Delete(b("r4"), 9));
      c.rest("rest", scanner);
    }
    c.scan("afterwards", table, scan());
  }

  private void renew(Case c) throws Exception {
    Table table = tenRows(c);
    try (ResultScanner scanner = table.getScanner(scan("f:q").setCaching(1))) {
      c.say("before-first", scanner.renewLease());
      c.say("first", scanner.next());
      c.say("renewed", scanner.renewLease());
      c.say("second", scanner.next());
      c.say("renewed", scanner.renewLease());
      c.rest("rest", scanner);
      c.say("after-end", scanner.renewLease());
    }
  }

  /** The filter of a scanner goes on after a renewal: a scanner that is opened again would begin another page. */
  private void renewPage(Case c) throws Exception {
    Table table = tenRows(c);
    try (ResultScanner scanner = table.getScanner(scan("f:q").setCaching(1)
        .setFilter(new org.apache.hadoop.hbase.filter.PageFilter(2)))) {
      c.say("first", scanner.next());
      c.say("renewed", scanner.renewLease());
      c.rest("rest", scanner);
    }
  }

  private void metrics(Case c) throws Exception {
    Table table = tenRows(c);
    try (ResultScanner scanner = table.getScanner(scan("f:q").setScanMetricsEnabled(true)
        .setFilter(new org.apache.hadoop.hbase.filter.RowFilter(org.apache.hadoop.hbase.CompareOperator.NOT_EQUAL,
            new org.apache.hadoop.hbase.filter.BinaryComparator(b("r4")))))) {
      int rows = 0;
      while (scanner.next() != null) {
        rows++;
      }
      ScanMetrics metrics = scanner.getScanMetrics();
      c.say("rows", rows);
      c.say("regions", metrics.countOfRegions.get());
      c.say("rows-scanned", metrics.countOfRowsScanned.get());
      c.say("rows-filtered", metrics.countOfRowsFiltered.get());
      c.say("restarts", metrics.countOfNSRE.get());
    }
  }

  private void closedEarly(Case c) throws Exception {
    Table table = tenRows(c);
    for (int i = 0; i < 100; i++) {
      try (ResultScanner scanner = table.getScanner(scan("f:q").setCaching(1))) {
        scanner.next();
      }
    }
    ResultScanner scanner = table.getScanner(scan("f:q").setCaching(1));
    c.say("first", scanner.next());
    scanner.close();
    scanner.close();
    c.failsAs("after-close", () -> c.say("next", scanner.next()));
  }

  private void manyAtOnce(Case c) throws Exception {
    Table table = tenRows(c);
    ResultScanner[] scanners = new ResultScanner[20];
    for (int i = 0; i < scanners.length; i++) {
      scanners[i] = table.getScanner(scan("f:q").setCaching(1).setReversed(i % 2 == 1));
    }
    int rows = 0;
    for (int round = 0; round < 10; round++) {
      for (ResultScanner scanner : scanners) {
        rows += scanner.next() == null ? 0 : 1;
      }
    }
    int ended = 0;
    for (ResultScanner scanner : scanners) {
      ended += scanner.next() == null ? 1 : 0;
      scanner.close();
    }
    c.say("rows", rows);
    c.say("exhausted", ended);
  }

  private void errors(Case c) throws Exception {
    Table table = c.create("f");
    c.failsAs("absent-family", () -> c.scan("rows", table, scan("g")));
    c.failsAs("absent-family-of-column", () -> c.scan("rows", table, scan("f:q", "g:q")));
    c.fails("absent-table", () -> c.scan("rows", c.connection.getTable(c.other("none")), scan()));
  }
}
