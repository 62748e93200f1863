package stele.clients.hbase;

import static stele.clients.hbase.Cells.b;
import static stele.clients.hbase.Cells.delete;
import static stele.clients.hbase.Cells.get;
import static stele.clients.hbase.Cells.put;
import static stele.clients.hbase.Cells.scan;

import java.util.ArrayList;
import java.util.List;
import org.apache.hadoop.hbase.client.Delete;
import org.apache.hadoop.hbase.client.Table;

/** The kinds of delete, and the writes that they hide. */
final class Deletes extends Area {
  Deletes() {
    super("deletes");
    kind("version", delete("r").addColumn(b("a"), b("q"), 3));
    kind("absent-version", delete("r").addColumn(b("a"), b("q"), 9));
    kind("newest-version", delete("r").addColumn(b("a"), b("q")));
    kind("column", delete("r").addColumns(b("a"), b("q")));
    kind("column-until", delete("r").addColumns(b("a"), b("q"), 3));
    kind("family", delete("r").addFamily(b("a")));
    kind("family-until", delete("r").addFamily(b("a"), 3));
    kind("family-version", delete("r").addFamilyVersion(b("a"), 3));
    kind("row", delete("r"));
    kind("row-until", new Delete(b("r"), 3));
    kind("empty-qualifier", delete("r").addColumns(b("a"), b("")));
    kind("several", delete("r").addColumn(b("a"), b("q"), 2).addColumns(b("a"), b("p"), 2).addFamily(b("b"), 3));
    kind("absent-column", delete("r").addColumns(b("a"), b("none")));
    add("newest-again", this::newestAgain);
    add("newest-of-absent", this::newestOfAbsent);
    add("absent-row", this::absentRow);
    add("put-after-column", c -> putAfter(c, delete("r").addColumns(b("f"), b("q"), 5)));
    add("put-after-version", c -> putAfter(c, delete("r").addColumn(b("f"), b("q"), 5)));
    add("put-after-family", c -> putAfter(c, delete("r").addFamily(b("f"), 5)));
    add("put-after-family-version", c -> putAfter(c, delete("r").addFamilyVersion(b("f"), 5)));
    add("put-after-row", c -> putAfter(c, new Delete(b("r"), 5)));
    add("now-then-put-now", this::nowThenPutNow);
    add("list", this::list);
    add("marker-order", this::markerOrder);
    add("errors", this::errors);
  }

  /** One delete of a row with two families, two columns and four versions. */
  private void kind(String name, Delete delete) {
    add(name, c -> {
      Table table = c.versions(5, "a", "b");
      for (int i = 1; i <= 4; i++) {
        table.put(put("r", i, "a:q=v" + i, "a:p=w" + i, "b:q=x" + i));
      }
      table.put(put("r", 2, "a:=no qualifier"));
      table.put(put("s", 2, "a:q=neighbour"));
      table.delete(delete);
      c.get("newest", table, get("r"));
      c.get("all", table, get("r").readAllVersions());
      c.get("early", table, get("r").readAllVersions().setTimeRange(0, 3));
      c.say("exists", table.exists(get("r", "a:q")));
      c.scan("scan", table, scan().readAllVersions());
      c.everything("raw", table);
    });
  }

  private void newestAgain(Case c) throws Exception {
    Table table = c.versions(5, "f");
    for (int i = 1; i <= 3; i++) {
      table.put(put("r", i, "f:q=v" + i));
    }
    for (int i = 0; i < 4; i++) {
      table.delete(delete("r").addColumn(b("f"), b("q")));
      c.get("left", table, get("r").readAllVersions());
    }
  }

  private void newestOfAbsent(Case c) throws Exception {
    Table table = c.versions(5, "f");
    table.put(put("r", 1, "f:p=v"));
    table.delete(delete("r").addColumn(b("f"), b("q")));
    table.put(put("r", 1, "f:q=later"));
    c.get("row", table, get("r"));
  }

  private void absentRow(Case c) throws Exception {
    Table table = c.create("f");
    table.delete(new Delete(b("r"), 5));
    c.get("row", table, get("r"));
    c.everything("raw", table);
  }

  /** A marker hides puts at its time and before, also those that come later. */
  private void putAfter(Case c, Delete delete) throws Exception {
    Table table = c.versions(9, "f");
    table.put(put("r", 5, "f:q=before"));
    table.delete(delete);
    c.get("deleted", table, get("r").readAllVersions());
    table.put(put("r", 4, "f:q=lower"));
    c.get("lower", table, get("r").readAllVersions());
    table.put(put("r", 5, "f:q=equal"));
    c.get("equal", table, get("r").readAllVersions());
    table.put(put("r", 6, "f:q=higher"));
    c.get("higher", table, get("r").readAllVersions());
    c.everything("raw", table);
  }

  /** The server's clock may give both the same time; then the marker wins, so the put is repeated. */
  private void nowThenPutNow(Case c) throws Exception {
    Table table = c.create("f");
    table.put(put("r", 1, "f:q=old"));
    table.delete(delete("r"));
    c.get("deleted", table, get("r"));
    c.say("seen", Case.until(() -> {
      table.put(put("r", "f:q=new"));
      return table.exists(get("r"));
    }));
    c.get("row", table, get("r"));
  }

  private void list(Case c) throws Exception {
    Table table = c.create(Case.described(c.name, 1, "f"), "c");
    for (String row : List.of("a", "b", "c", "d")) {
      table.put(put(row, 1, "f:q=" + row, "f:p=" + row));
    }
    List<Delete> deletes =
        new ArrayList<>(List.of(delete("a"), delete("c").addColumns(b("f"), b("q")),
            delete("d").addColumn(b("f"), b("p"))));
    table.delete(deletes);
    c.say("list-left", deletes.size());
    c.scan("rows", table, scan());
  }

  private void markerOrder(Case c) throws Exception {
    Table table = c.versions(9, "f");
    table.put(put("r", 5, "f:q=v", "f:=e"));
    table.delete(delete("r").addColumn(b("f"), b("q"), 5));
    table.delete(delete("r").addColumns(b("f"), b("q"), 5));
    table.delete(delete("r").addFamily(b("f"), 5));
    table.delete(delete("r").addFamilyVersion(b("f"), 5));
    table.delete(delete("r").addFamily(b("f"), 7));
    c.everything("raw", table);
    c.failsAs("raw-column", () -> c.scan("raw-column-rows", table, scan("f:q").setRaw(true).readAllVersions()));
    c.scan("raw-family", table, scan("f").setRaw(true).readAllVersions());
    c.scan("raw-time", table, scan().setRaw(true).readAllVersions().setTimeRange(6, 9));
    c.scan("raw-one-version", table, scan().setRaw(true));
  }

  private void errors(Case c) throws Exception {
    Table table = c.create("f");
    table.put(put("r", 1, "f:q=v"));
    c.failsAs("absent-family", () -> table.delete(delete("r").addFamily(b("g"))));
    c.failsAs("absent-family-of-column", () -> table.delete(delete("r").addColumns(b("g"), b("q"))));
    c.fails("absent-table", () -> c.connection.getTable(c.other("none")).delete(delete("r")));
    List<Delete> deletes = new ArrayList<>(List.of(delete("r"), delete("s").addFamily(b("g"))));
    c.failsAs("list", () -> table.delete(deletes));
    c.say("list-left", deletes.size());
    c.get("row", table, get("r"));
  }
}
