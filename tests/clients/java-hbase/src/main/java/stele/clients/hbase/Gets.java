package stele.clients.hbase;

import static stele.clients.hbase.Cells.b;
import static stele.clients.hbase.Cells.get;
import static stele.clients.hbase.Cells.put;

import java.util.ArrayList;
import java.util.List;
import org.apache.hadoop.hbase.client.Consistency;
import org.apache.hadoop.hbase.client.Get;
import org.apache.hadoop.hbase.client.IsolationLevel;
import org.apache.hadoop.hbase.client.Put;
import org.apache.hadoop.hbase.client.Result;
import org.apache.hadoop.hbase.client.Table;
import org.apache.hadoop.hbase.util.Bytes;

/** Reads of single rows. */
final class Gets extends Area {
  Gets() {
    super("gets");
    add("columns", this::columns);
    add("versions", this::versions);
    add("one-version", this::oneVersion);
    add("times", this::times);
    add("family-times", this::familyTimes);
    add("limits", this::limits);
    add("exists", this::exists);
    add("empty-parts", this::emptyParts);
    add("binary", this::binary);
    add("many", this::many);
    add("hints", this::hints);
    add("server-time", this::serverTime);
    add("wide-row", this::wideRow);
    add("large-value", this::largeValue);
    add("errors", this::errors);
  }

  /** Families are created in an order that is not that of their names. */
  private void columns(Case c) throws Exception {
    Table table = c.create("z", "a", "m");
    table.put(put("r", 5, "z:1=z1", "a:1=a1", "a:2=a2", "m:1=m1", "z:0=z0", "a:10=a10"));
    c.get("all", table, get("r"));
    c.get("family", table, get("r", "m"));
    c.get("families", table, get("r", "z", "a"));
    c.get("column", table, get("r", "a:1"));
    c.get("columns", table, get("r", "z:1", "a:2", "a:1"));
    c.get("column-and-family", table, get("r", "a:1", "z"));
    c.get("column-then-its-family", table, get("r", "a:1", "a"));
    c.get("absent-column", table, get("r", "a:3"));
    c.get("one-of-two-absent", table, get("r", "a:3", "m:1"));
    c.get("absent-row", table, get("q"));
  }

  private void versions(Case c) throws Exception {
    Table table = c.versions(5, "f");
    for (int i = 1; i <= 7; i++) {
      table.put(put("r", i, "f:q=v" + i, "f:p=w" + i));
    }
    c.get("default", table, get("r"));
    c.get("all", table, get("r").readAllVersions());
    c.get("three", table, get("r").readVersions(3));
    c.get("more-than-kept", table, get("r").readVersions(100));
    c.get("of-column", table, get("r", "f:q").readVersions(2));
  }

  private void oneVersion(Case c) throws Exception {
    Table table = c.create("f");
    table.put(put("r", 3, "f:q=three"));
    table.put(put("r", 1, "f:q=one"));
    table.put(put("r", 2, "f:q=two"));
    c.get("newest", table, get("r").readAllVersions());
    table.put(put("r", 3, "f:q=again"));
    c.get("same-time", table, get("r").readAllVersions());
  }

  private void times(Case c) throws Exception {
    Table table = c.versions(5, "f");
    for (int i = 1; i <= 5; i++) {
      table.put(put("r", i * 10, "f:q=v" + i));
    }
    table.put(put("r", 0, "f:zero=0"));
    c.get("range", table, get("r").setTimeRange(20, 40));
    c.get("range-all", table, get("r").setTimeRange(20, 40).readAllVersions());
    c.get("range-end-is-exclusive", table, get("r").setTimeRange(10, 11).readAllVersions());
    c.get("range-empty", table, get("r").setTimeRange(21, 30).readAllVersions());
    c.get("range-from-zero", table, get("r").setTimeRange(0, 1).readAllVersions());
    c.get("exact", table, get("r").setTimestamp(30));
    c.get("exact-absent", table, get("r").setTimestamp(35));
    c.get("up-to-now", table, get("r").setTimeRange(0, System.currentTimeMillis()));
  }

  private void familyTimes(Case c) throws Exception {
    Table table = c.versions(5, "a", "b");
    for (int i = 1; i <= 5; i++) {
      table.put(put("r", i, "a:q=a" + i, "b:q=b" + i));
    }
    c.get("one-family", table, get("r").readAllVersions().setColumnFamilyTimeRange(b("a"), 2, 4));
    c.get("both", table,
        get("r").readAllVersions().setColumnFamilyTimeRange(b("a"), 2, 4).setColumnFamilyTimeRange(b("b"), 5, 6));
    c.get("with-row-range", table,
        get("r").readAllVersions().setTimeRange(1, 3).setColumnFamilyTimeRange(b("b"), 4, 5));
  }

  private void limits(Case c) throws Exception {
    Table table = c.versions(2, "a", "b");
    for (int i = 0; i < 6; i++) {
      table.put(put("r", 1, "a:" + i + "=old", "b:" + i + "=old"));
      table.put(put("r", 2, "a:" + i + "=new", "b:" + i + "=new"));
    }
    c.get("limit", table, get("r").setMaxResultsPerColumnFamily(2));
    c.get("offset", table, get("r").setRowOffsetPerColumnFamily(4));
    c.get("both", table, get("r").setMaxResultsPerColumnFamily(2).setRowOffsetPerColumnFamily(3));
    c.get("past-the-end", table, get("r").setRowOffsetPerColumnFamily(6));
    c.get("versions-count", table, get("r").readAllVersions().setMaxResultsPerColumnFamily(3));
    c.get("versions-offset", table,
        get("r").readAllVersions().setMaxResultsPerColumnFamily(2).setRowOffsetPerColumnFamily(1));
    c.get("zero", table, get("r").setMaxResultsPerColumnFamily(0));
  }

  private void exists(Case c) throws Exception {
    Table table = c.create("f");
    table.put(put("r", 1, "f:q=v", "f:empty="));
    c.say("row", table.exists(get("r")));
    c.say("absent-row", table.exists(get("s")));
    c.say("column", table.exists(get("r", "f:q")));
    c.say("absent-column", table.exists(get("r", "f:p")));
    c.say("empty-value", table.exists(get("r", "f:empty")));
    c.say("other-time", table.exists(get("r").setTimeRange(2, 3)));
    c.say("list", table.exists(List.of(get("r"), get("s"), get("r", "f:p"), get("r", "f:q"))));
    Result only = table.get(get("r").setCheckExistenceOnly(true));
    c.say("existence-only", only);
    c.say("existence-only-cells", only.size());
  }

  private void emptyParts(Case c) throws Exception {
    Table table = c.versions(3, "f");
    table.put(put("r", 1, "f:=no qualifier", "f:q=", "f:p=v"));
    table.put(put("r", 2, "f:="));
    c.get("all", table, get("r").readAllVersions());
    c.get("empty-qualifier", table, get("r", "f:").readAllVersions());
    Result result = table.get(get("r", "f:q"));
    c.say("empty-value", result.getValue(b("f"), b("q")).length);
    c.say("contains-empty", result.containsEmptyColumn(b("f"), b("q")));
  }

  private void binary(Case c) throws Exception {
    Table table = c.create("f");
    table.put(put("\\x00", 1, "f:\\x00=\\xFF"));
    table.put(put("\\x00\\x00", 1, "f:\\xFF\\x00=\\x00"));
    table.put(put("\\xFF\\xFF", 1, "f:\\x01=\\x80", "f:\\x7F=\\x7F", "f:\\x80=\\x81"));
    c.get("zero", table, get("\\x00"));
    c.get("two-zeros", table, get("\\x00\\x00"));
    c.get("high", table, get("\\xFF\\xFF"));
    c.get("column", table, get("\\xFF\\xFF", "f:\\x80"));
    c.scan("order", table, Cells.scan());
    byte[] longest = new byte[Short.MAX_VALUE];
    table.put(new Put(longest).addColumn(b("f"), b("q"), 1, b("v")));
    c.get("longest-row", table, new Get(longest));
  }

  private void many(Case c) throws Exception {
    Table table = c.create(Case.described(c.name, 1, "f"), "h", "p");
    List<Get> gets = new ArrayList<>();
    for (String row : List.of("a", "g", "h", "m", "p", "z")) {
      table.put(put(row, 1, "f:q=" + row));
      gets.add(get(row));
    }
    gets.add(get("absent"));
    gets.add(get("a"));
    gets.add(get("m", "f:none"));
    Result[] results = table.get(gets);
    for (int i = 0; i < results.length; i++) {
      c.say(Bytes.toString(gets.get(i).getRow()), results[i]);
    }
    c.say("none", table.get(List.<Get>of()).length);
  }

  /** Settings that are about speed or replicas change no result. */
  private void hints(Case c) throws Exception {
    Table table = c.create("f");
    table.put(put("r", 1, "f:q=v"));
    c.get("no-cache", table, get("r").setCacheBlocks(false));
    c.get("timeline", table, get("r").setConsistency(Consistency.TIMELINE));
    c.get("uncommitted", table, get("r").setIsolationLevel(IsolationLevel.READ_UNCOMMITTED));
    c.get("on-demand", table, get("r").setLoadColumnFamiliesOnDemand(true));
    c.get("priority", table, get("r").setPriority(100));
    c.get("id", table, get("r").setId("me"));
    c.get("attribute", table, get("r").setAttribute("unknown", b("attribute")));
  }

  private void serverTime(Case c) throws Exception {
    Table table = c.create("a", "b");
    table.put(put("r", "a:q=v", "b:q=w", "a:p=x"));
    Result result = table.get(get("r"));
    c.say("row", result);
    long first = result.rawCells()[0].getTimestamp();
    boolean same = true;
    for (var cell : result.rawCells()) {
      same &= cell.getTimestamp() == first;
    }
    c.say("one-time-for-all", same);
  }

  private void wideRow(Case c) throws Exception {
    Table table = c.create("f");
    Put put = new Put(b("r"));
    for (int i = 0; i < 2_000; i++) {
      put.addColumn(b("f"), b(String.format("%05d", i)), 1, b("v" + i));
    }
    table.put(put);
    Result result = table.get(get("r"));
    c.say("cells", result.size());
    c.say("first", result.getValue(b("f"), b("00000")));
    c.say("last", result.getValue(b("f"), b("01999")));
    c.get("one", table, get("r", "f:01000"));
  }

  private void largeValue(Case c) throws Exception {
    Table table = c.create("f");
    byte[] value = new byte[5 << 20];
    for (int i = 0; i < value.length; i++) {
      value[i] = (byte) (i * 31 >> 3);
    }
    table.put(new Put(b("r")).addColumn(b("f"), b("q"), 1, value));
    c.get("row", table, get("r"));
  }

  private void errors(Case c) throws Exception {
    Table table = c.create("f");
    table.put(put("r", 1, "f:q=v"));
    c.failsAs("absent-family", () -> table.get(get("r", "g")));
    c.failsAs("absent-family-of-column", () -> table.get(get("r", "g:q")));
    c.failsAs("absent-family-in-list", () -> table.get(List.of(get("r"), get("r", "g"))));
    c.fails("absent-table", () -> c.connection.getTable(c.other("none")).get(get("r")));
    c.fails("absent-namespace", () -> c.connection
        .getTable(org.apache.hadoop.hbase.TableName.valueOf("gets_none:t")).get(get("r")));
    c.get("afterwards", table, get("r"));
  }
}
