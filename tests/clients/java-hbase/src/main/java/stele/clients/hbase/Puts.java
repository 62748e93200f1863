package stele.clients.hbase;

import static stele.clients.hbase.Cells.b;
import static stele.clients.hbase.Cells.get;
import static stele.clients.hbase.Cells.put;
import static stele.clients.hbase.Cells.scan;

import java.util.ArrayList;
import java.util.List;
import org.apache.hadoop.hbase.Cell;
import org.apache.hadoop.hbase.CellBuilderFactory;
import org.apache.hadoop.hbase.CellBuilderType;
import org.apache.hadoop.hbase.KeepDeletedCells;
import org.apache.hadoop.hbase.client.BufferedMutator;
import org.apache.hadoop.hbase.client.BufferedMutatorParams;
import org.apache.hadoop.hbase.client.ColumnFamilyDescriptor;
import org.apache.hadoop.hbase.client.ColumnFamilyDescriptorBuilder;
import org.apache.hadoop.hbase.client.Durability;
import org.apache.hadoop.hbase.client.Put;
import org.apache.hadoop.hbase.client.Result;
import org.apache.hadoop.hbase.client.ResultScanner;
import org.apache.hadoop.hbase.client.Table;
import org.apache.hadoop.hbase.client.TableDescriptorBuilder;

/** Writes of cells, and the rules of a family about how long cells stay. */
final class Puts extends Area {
  private static final int BUFFERED_ROWS = 10_000;

  Puts() {
    super("puts");
    add("overwrite", this::overwrite);
    add("list", this::list);
    add("durability", this::durability);
    add("times", this::times);
    add("marker-in-put", this::markerInPut);
    add("cell-lifetime", this::cellLifetime);
    add("family-lifetime", this::familyLifetime);
    add("least-versions", this::leastVersions);
    add("keep-deleted", this::keepDeleted);
    add("buffered", this::buffered);
    add("buffered-errors", this::bufferedErrors);
    add("errors", this::errors);
  }

  private void overwrite(Case c) throws Exception {
    Table table = c.versions(3, "f");
    table.put(put("r", 5, "f:q=first"));
    table.put(put("r", 5, "f:q=second"));
    c.get("same-time", table, get("r").readAllVersions());
    table.put(put("r", 4, "f:q=older"));
    c.get("older", table, get("r"));
    c.get("both", table, get("r").readAllVersions());
    table.put(new Put(b("r")).addColumn(b("f"), b("q"), 6, b("x")).addColumn(b("f"), b("q"), 7, b("y")));
    c.get("two-times-in-one-put", table, get("r").readAllVersions());
    table.put(new Put(b("s")).addColumn(b("f"), b("q"), 6, b("x")).addColumn(b("f"), b("q"), 6, b("y")));
    c.get("one-cell-twice-in-one-put", table, get("s").readAllVersions());
  }

  private void list(Case c) throws Exception {
    Table table = c.create(Case.described(c.name, 3, "f"), "c", "e");
    List<Put> puts = new ArrayList<>();
    for (String row : List.of("f", "a", "d", "b", "e", "c")) {
      puts.add(put(row, 1, "f:q=" + row));
    }
    puts.add(put("a", 2, "f:q=later"));
    table.put(puts);
    c.scan("rows", table, scan());
    c.get("twice", table, get("a").readAllVersions());
  }

  private void durability(Case c) throws Exception {
    Table table = c.create("f");
    for (Durability durability : Durability.values()) {
      table.put(put(durability.name(), 1, "f:q=v").setDurability(durability));
    }
    c.scan("rows", table, scan());
  }

  private void times(Case c) throws Exception {
    Table table = c.versions(9, "f");
    table.put(put("r", 0, "f:q=zero"));
    table.put(put("r", 1, "f:q=one"));
    table.put(put("r", 4_102_444_800_000L, "f:q=year 2100"));
    table.put(put("r", Long.MAX_VALUE - 1, "f:q=last"));
    table.put(put("r", "f:q=server"));
    c.get("all", table, get("r").readAllVersions());
    c.get("newest", table, get("r"));
    c.get("before-future", table, get("r").setTimeRange(0, 4_102_444_800_000L));
    c.fails("negative", () -> table.put(put("r", -1, "f:q=negative")));
  }

  private void markerInPut(Case c) throws Exception {
    Table table = c.versions(3, "f");
    table.put(put("r", 5, "f:q=v", "f:p=v"));
    Cell marker = CellBuilderFactory.create(CellBuilderType.SHALLOW_COPY).setRow(b("r")).setFamily(b("f"))
        .setQualifier(b("q")).setTimestamp(6).setType(Cell.Type.DeleteColumn).build();
    c.failsAs("put", () -> table.put(put("r", 6, "f:o=new").add(marker)));
    c.get("row", table, get("r"));
    c.everything("raw", table);
  }

  private void cellLifetime(Case c) throws Exception {
    Table table = c.create("f");
    table.put(put("r", "f:hour=v").setTTL(3_600_000));
    table.put(put("r", "f:moment=v").setTTL(1));
    table.put(put("r", 1, "f:long-ago=v").setTTL(1_000));
    c.say("moment-ends", Case.until(() -> !table.exists(get("r", "f:moment"))));
    c.get("left", table, get("r"));
  }

  private void familyLifetime(Case c) throws Exception {
    Table table = c.create(table(c, ColumnFamilyDescriptorBuilder.newBuilder(b("f")).setMaxVersions(3)
        .setTimeToLive(1_000).build()));
    long now = System.currentTimeMillis();
    table.put(put("r", now - 2_000_000, "f:q=expired"));
    table.put(put("r", now - 1_000, "f:q=alive"));
    c.get("all", table, get("r").readAllVersions());
    table.put(put("s", now - 2_000_000, "f:q=expired"));
    c.get("row-expired", table, get("s"));
    c.scan("scan", table, scan());
  }

  private void leastVersions(Case c) throws Exception {
    Table table = c.create(table(c, ColumnFamilyDescriptorBuilder.newBuilder(b("f")).setMaxVersions(5)
        .setMinVersions(2).setTimeToLive(1_000).build()));
    for (int i = 1; i <= 4; i++) {
      table.put(put("r", i, "f:q=v" + i));
    }
    c.get("expired-but-kept", table, get("r").readAllVersions());
    table.put(put("r", "f:q=fresh"));
    c.get("with-a-fresh-one", table, get("r").readAllVersions());
  }

  private void keepDeleted(Case c) throws Exception {
    Table table = c.create(table(c, ColumnFamilyDescriptorBuilder.newBuilder(b("f")).setMaxVersions(3)
        .setKeepDeletedCells(KeepDeletedCells.TRUE).build()));
    table.put(put("r", 1, "f:q=one"));
    table.put(put("r", 3, "f:q=three"));
    table.delete(Cells.delete("r").addColumns(b("f"), b("q"), 5));
    c.get("now", table, get("r").readAllVersions());
    c.get("before-the-delete", table, get("r").readAllVersions().setTimeRange(0, 5));
    c.get("with-the-delete", table, get("r").readAllVersions().setTimeRange(0, 6));
  }

  private static org.apache.hadoop.hbase.client.TableDescriptor table(Case c, ColumnFamilyDescriptor family) {
    return TableDescriptorBuilder.newBuilder(c.name).setColumnFamily(family).build();
  }

  private void buffered(Case c) throws Exception {
    Table table = c.create(Case.described(c.name, 1, "f"), "03000", "06000");
    try (BufferedMutator mutator =
        c.connection.getBufferedMutator(new BufferedMutatorParams(c.name).writeBufferSize(100_000))) {
      for (int i = 0; i < BUFFERED_ROWS; i++) {
        mutator.mutate(put(String.format("%05d", i * 7919 % BUFFERED_ROWS), 1, "f:q=value of " + i, "f:n=" + i));
      }
      mutator.flush();
      mutator.mutate(Cells.delete("00000"));
      mutator.mutate(List.of(put("99999", 1, "f:q=last"), Cells.delete("00001")));
    }
    int rows = 0;
    long sum = 0;
    try (ResultScanner scanner = table.getScanner(scan())) {
      for (Result result : scanner) {
        rows++;
        byte[] number = result.getValue(b("f"), b("n"));
        sum += number == null ? 0 : Long.parseLong(new String(number));
      }
    }
    c.say("rows", rows);
    c.say("sum", sum);
    c.get("deleted", table, get("00000"));
    c.get("last", table, get("99999"));
  }

  private void bufferedErrors(Case c) throws Exception {
    Table table = c.create("f");
    List<String> heard = new ArrayList<>();
    BufferedMutatorParams params = new BufferedMutatorParams(c.name).listener((error, mutator) -> {
      synchronized (heard) {
        heard.add(Show.chain(error));
      }
    });
    try (BufferedMutator mutator = c.connection.getBufferedMutator(params)) {
      mutator.mutate(List.of(put("a", 1, "f:q=v"), put("b", 1, "g:q=v"), put("c", 1, "f:q=v")));
      mutator.flush();
    }
    c.say("heard", heard);
    c.scan("rows", table, scan());
  }

  private void errors(Case c) throws Exception {
    Table table = c.create("f");
    c.failsAs("absent-family", () -> table.put(put("r", 1, "g:q=v")));
    c.failsAs("absent-family-among-others", () -> table.put(put("r", 1, "f:q=v", "g:q=v")));
    c.get("nothing-written", table, get("r"));
    c.fails("absent-table", () -> c.connection.getTable(c.other("none")).put(put("r", 1, "f:q=v")));
    List<Put> puts = new ArrayList<>(List.of(put("a", 1, "f:q=v"), put("b", 1, "g:q=v"), put("c", 1, "f:q=v")));
    c.failsAs("list", () -> table.put(puts));
    c.scan("others-of-the-list", table, scan());
  }
}
