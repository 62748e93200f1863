package stele.clients.hbase;

import static stele.clients.hbase.Cells.append;
import static stele.clients.hbase.Cells.b;
import static stele.clients.hbase.Cells.delete;
import static stele.clients.hbase.Cells.get;
import static stele.clients.hbase.Cells.increment;
import static stele.clients.hbase.Cells.put;
import static stele.clients.hbase.Cells.scan;

import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import org.apache.hadoop.hbase.client.CheckAndMutate;
import org.apache.hadoop.hbase.client.Row;
import org.apache.hadoop.hbase.client.RowMutations;
import org.apache.hadoop.hbase.client.Table;

/** Several mutations of one row at once, and several operations in one request. */
final class Batches extends Area {
  Batches() {
    super("batches");
    add("row", this::row);
    add("row-same-cell", this::rowSameCell);
    add("row-results", this::rowResults);
    add("row-delete-and-put", this::rowDeleteAndPut);
    add("row-errors", this::rowErrors);
    add("mixed", this::mixed);
    add("in-order", this::inOrder);
    add("regions", this::regions);
    add("failing", this::failing);
    add("failing-widths", this::failingWidths);
    add("row-mutations", this::rowMutations);
    add("checks", this::checks);
    add("callback", this::callback);
    add("large", this::large);
    add("errors", this::errors);
  }

  /** Increments and appends of a batch start from the puts before them. */
  private void inOrder(Case c) throws Exception {
    Table table = c.create("f");
    Object[] results = new Object[4];
    table.batch(List.of(put("r", 1, "f:n=AAAAAAAA"), increment("r", 1, "f:n"), put("r", 1, "f:a=x"),
        append("r", "f:a=y")), results);
    for (int i = 0; i < results.length; i++) {
      c.say("result." + i, results[i]);
    }
    c.get("row", table, get("r"));
  }

  private void row(Case c) throws Exception {
    Table table = c.versions(3, "a", "b");
    table.put(put("r", 1, "a:q=v", "b:q=v", "b:p=v"));
    RowMutations mutations = new RowMutations(b("r"));
    mutations.add(put("r", 2, "a:new=1"));
    mutations.add(delete("r").addColumns(b("b"), b("q"), 5));
    mutations.add(put("r", 2, "b:new=2"));
    mutations.add(delete("r").addColumn(b("b"), b("p"), 1));
    c.say("result", table.mutateRow(mutations));
    c.get("row", table, get("r"));
  }

  private void rowSameCell(Case c) throws Exception {
    Table table = c.versions(3, "f");
    c.say("result", table.mutateRow(new RowMutations(b("r")).add(List.of(put("r", 5, "f:q=first"),
        put("r", 5, "f:q=second")))));
    c.get("row", table, get("r").readAllVersions());
  }

  private void rowResults(Case c) throws Exception {
    Table table = c.create("f");
    table.put(put("r", 1, "f:a=x"));
    RowMutations mutations = new RowMutations(b("r"));
    mutations.add(increment("r", 3, "f:n"));
    mutations.add(append("r", "f:a=y"));
    mutations.add(put("r", 2, "f:p=v"));
    c.say("result", table.mutateRow(mutations));
    c.get("row", table, get("r"));
  }

  /** Deletes and puts of one row at the server's time: the order in the list does not matter, the marker wins. */
  private void rowDeleteAndPut(Case c) throws Exception {
    Table table = c.create("f", "g");
    table.put(put("r", 1, "f:q=old", "g:q=old"));
    RowMutations mutations = new RowMutations(b("r"));
    mutations.add(delete("r").addFamily(b("f"), 5));
    mutations.add(put("r", 5, "f:q=equal"));
    mutations.add(put("r", 6, "f:p=higher"));
    table.mutateRow(mutations);
    c.get("explicit", table, get("r"));
    RowMutations now = new RowMutations(b("r"));
    now.add(delete("r").addFamily(b("g")));
    now.add(put("r", "g:p=now"));
    table.mutateRow(now);
    c.get("now", table, get("r"));
  }

  private void rowErrors(Case c) throws Exception {
    Table table = c.create("f");
    table.put(put("r", 1, "f:q=v", "f:three=abc"));
    c.failsAs("absent-family",
        () -> table.mutateRow(new RowMutations(b("r")).add(List.of(put("r", 2, "f:p=v"), put("r", 2, "g:p=v")))));
    c.failsAs("width", () -> table.mutateRow(
        new RowMutations(b("r")).add(List.of(put("r", 2, "f:p=v"), increment("r", 2, "f:three")))));
    c.fails("other-row", () -> new RowMutations(b("r")).add(List.of(put("s", 2, "f:p=v"))));
    c.fails("nothing", () -> table.mutateRow(new RowMutations(b("r"))));
    c.get("row", table, get("r"));
  }

  private static void batch(Case c, Table table, List<? extends Row> actions) throws Exception {
    Object[] results = new Object[actions.size()];
    c.failsAs("call", () -> table.batch(actions, results));
    for (int i = 0; i < results.length; i++) {
      c.say("result." + i, results[i]);
    }
  }

  private void mixed(Case c) throws Exception {
    Table table = c.create("f");
    for (String row : List.of("a", "b", "c", "d", "e")) {
      table.put(put(row, 1, "f:q=" + row));
    }
    batch(c, table, List.of(get("a"), put("p", 1, "f:q=put"), get("absent"), delete("b"), increment("i", 5, "f:n"),
        append("c", "f:q=+"), get("d", "f:none"), increment("i2", 5, "f:n").setReturnResults(false), get("e")));
    c.scan("rows", table, scan());
  }

  private void regions(Case c) throws Exception {
    Table table = c.create(Case.described(c.name, 1, "f"), "b", "c", "d", "e");
    List<Row> actions = new ArrayList<>();
    for (String row : List.of("e5", "a1", "d4", "b2", "c3")) {
      actions.add(put(row, 1, "f:q=" + row));
    }
    batch(c, table, actions);
    actions.clear();
    for (String row : List.of("c3", "e5", "none", "a1", "b2", "d4")) {
      actions.add(get(row));
      actions.add(increment(row + "-n", 1, "f:n"));
    }
    batch(c, table, actions);
  }

  private void failing(Case c) throws Exception {
    Table table = c.create(Case.described(c.name, 1, "f"), "c");
    table.put(put("a", 1, "f:q=a"));
    batch(c, table, List.of(put("b", 1, "f:q=b"), put("bad1", 1, "g:q=v"), get("a"), get("a", "g"),
        delete("bad2").addFamily(b("g")), put("d", 1, "f:q=d"), increment("bad3", 1, "g:n"), increment("i", 1, "f:n"),
        append("bad4", "g:q=v")));
    c.scan("rows", table, scan());
  }

  private void failingWidths(Case c) throws Exception {
    Table table = c.create("f");
    table.put(put("a", 1, "f:three=abc"));
    batch(c, table, List.of(increment("a", 1, "f:three"), put("b", 1, "f:q=v"), increment("c", 1, "f:n")));
    c.scan("rows", table, scan());
  }

  private void rowMutations(Case c) throws Exception {
    Table table = c.create("f");
    table.put(put("a", 1, "f:q=v"));
    RowMutations plain = new RowMutations(b("a")).add(List.of(put("a", 2, "f:p=v"),
        delete("a").addColumns(b("f"), b("q"), 5)));
    RowMutations answering = new RowMutations(b("b")).add(List.of(increment("b", 2, "f:n"), append("b", "f:a=v")));
    RowMutations bad = new RowMutations(b("c")).add(List.of(put("c", 2, "f:p=v"), put("c", 2, "g:p=v")));
    batch(c, table, List.of(put("z", 1, "f:q=v"), plain, get("z0"), answering, bad, increment("y", 1, "f:n")));
    c.scan("rows", table, scan());
  }

  private void checks(Case c) throws Exception {
    Table table = c.create("f");
    table.put(put("a", 1, "f:q=v"));
    table.put(put("b", 1, "f:q=v"));
    batch(c, table, List.of(
        CheckAndMutate.newBuilder(b("a")).ifEquals(b("f"), b("q"), b("v")).build(put("a", 2, "f:p=v")),
        put("c", 1, "f:q=v"),
        CheckAndMutate.newBuilder(b("b")).ifEquals(b("f"), b("q"), b("w")).build(put("b", 2, "f:p=v")),
        CheckAndMutate.newBuilder(b("d")).ifNotExists(b("f"), b("q")).build(increment("d", 2, "f:n")),
        get("a", "f:q")));
    c.scan("rows", table, scan());
  }

  private void callback(Case c) throws Exception {
    Table table = c.create(Case.described(c.name, 1, "f"), "b");
    List<String> heard = Collections.synchronizedList(new ArrayList<>());
    Object[] results = new Object[3];
    table.batchCallback(List.of(put("a", 1, "f:q=v"), put("b", 1, "f:q=v"), get("none")), results,
        (region, row, result) -> heard.add(Show.bytes(row) + " " + Show.value(result)));
    heard.sort(null);
    c.say("heard", heard);
    c.say("results", results);
  }

  private void large(Case c) throws Exception {
    Table table = c.create(Case.described(c.name, 1, "f"), "0300", "0600");
    List<Row> actions = new ArrayList<>();
    for (int i = 0; i < 1_000; i++) {
      actions.add(put(String.format("%04d", i), 1, "f:q=" + "v".repeat(1_000) + i));
    }
    table.batch(actions, new Object[actions.size()]);
    List<Row> gets = new ArrayList<>();
    for (int i = 999; i >= 0; i--) {
      gets.add(get(String.format("%04d", i)));
    }
    Object[] results = new Object[gets.size()];
    table.batch(gets, results);
    int right = 0;
    for (int i = 0; i < results.length; i++) {
      byte[] row = ((org.apache.hadoop.hbase.client.Result) results[i]).getRow();
      right += Show.bytes(row).equals(String.format("%04d", 999 - i)) ? 1 : 0;
    }
    c.say("in-place", right);
  }

  private void errors(Case c) throws Exception {
    Table table = c.create("f");
    c.failsAs("nothing", () -> table.batch(List.<Row>of(), new Object[0]));
    c.failsAs("absent-table",
        () -> c.connection.getTable(c.other("none")).batch(List.of(put("a", 1, "f:q=v"), get("b")), new Object[2]));
  }
}
