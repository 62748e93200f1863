package stele.clients.hbase;

import static stele.clients.hbase.Cells.append;
import static stele.clients.hbase.Cells.b;
import static stele.clients.hbase.Cells.get;
import static stele.clients.hbase.Cells.increment;
import static stele.clients.hbase.Cells.put;

import org.apache.hadoop.hbase.client.Durability;
import org.apache.hadoop.hbase.client.Increment;
import org.apache.hadoop.hbase.client.Put;
import org.apache.hadoop.hbase.client.Table;
import org.apache.hadoop.hbase.util.Bytes;

/** Increment and append. */
final class Counters extends Area {
  private static final long FUTURE = 4_102_444_800_000L;

  Counters() {
    super("counters");
    add("increment", this::increments);
    add("increment-columns", this::incrementColumns);
    add("increment-silent", this::incrementSilent);
    add("increment-widths", this::incrementWidths);
    add("increment-times", this::incrementTimes);
    add("increment-future", this::incrementFuture);
    add("increment-deleted", this::incrementDeleted);
    add("append", this::appends);
    add("append-silent", this::appendSilent);
    add("append-times", this::appendTimes);
    add("append-future", this::appendFuture);
    add("lifetime", this::lifetime);
    add("errors", this::errors);
  }

  private void increments(Case c) throws Exception {
    Table table = c.create("f");
    c.say("absent", table.increment(increment("r", 5, "f:q")));
    c.say("present", table.increment(increment("r", 3, "f:q")));
    c.say("negative", table.increment(increment("r", -10, "f:q")));
    c.say("zero", table.increment(increment("r", 0, "f:q")));
    c.say("zero-of-absent", table.increment(increment("r", 0, "f:p")));
    c.say("column-value", table.incrementColumnValue(b("r"), b("f"), b("q"), 7));
    c.say("column-value-durability", table.incrementColumnValue(b("r"), b("f"), b("q"), 7, Durability.SKIP_WAL));
    table.put(new Put(b("r")).addColumn(b("f"), b("max"), 1, Bytes.toBytes(Long.MAX_VALUE)));
    c.say("overflow", table.increment(increment("r", 1, "f:max")));
    c.get("row", table, get("r"));
  }

  private void incrementColumns(Case c) throws Exception {
    Table table = c.versions(3, "z", "a");
    table.increment(increment("r", 1, "z:q", "a:q"));
    Increment mixed = new Increment(b("r")).addColumn(b("z"), b("q"), 10).addColumn(b("a"), b("p"), 20)
        .addColumn(b("a"), b("q"), 30).addColumn(b("a"), b(""), 40);
    c.say("result", table.increment(mixed));
    c.get("row", table, get("r"));
  }

  private void incrementSilent(Case c) throws Exception {
    Table table = c.create("f");
    c.say("result", table.increment(increment("r", 5, "f:q").setReturnResults(false)));
    c.say("result", table.increment(increment("r", 5, "f:q").setReturnResults(false)));
    c.get("row", table, get("r"));
  }

  private void incrementWidths(Case c) throws Exception {
    Table table = c.create("f");
    table.put(put("r", 1, "f:empty=", "f:three=abc", "f:nine=123456789",
        "f:eight=\\x00\\x00\\x00\\x00\\x00\\x00\\x00\\x09"));
    c.fails("empty", () -> table.increment(increment("r", 1, "f:empty")));
    c.fails("three", () -> table.increment(increment("r", 1, "f:three")));
    c.fails("nine", () -> table.increment(increment("r", 1, "f:nine")));
    c.say("eight", table.increment(increment("r", 1, "f:eight")));
    c.fails("good-and-bad", () -> table.increment(increment("r", 1, "f:eight", "f:three")));
    c.get("row", table, get("r"));
  }

  private void incrementTimes(Case c) throws Exception {
    Table table = c.versions(5, "f");
    table.put(new Put(b("r")).addColumn(b("f"), b("q"), 10, Bytes.toBytes(10L)));
    table.put(new Put(b("r")).addColumn(b("f"), b("q"), 20, Bytes.toBytes(20L)));
    c.say("old-one", table.increment(increment("r", 1, "f:q").setTimeRange(5, 15)));
    c.say("none", table.increment(increment("r", 1, "f:q").setTimeRange(30, 40)));
    c.say("newest", table.increment(increment("r", 1, "f:q")));
    c.get("first-two", table, get("r").readAllVersions().setTimeRange(0, 100));
  }

  /** The new cell must be the newest one, also where the old one is ahead of the clock. */
  private void incrementFuture(Case c) throws Exception {
    Table table = c.versions(5, "f");
    table.put(new Put(b("r")).addColumn(b("f"), b("q"), FUTURE, Bytes.toBytes(10L)));
    c.say("result", table.increment(increment("r", 1, "f:q")));
    c.say("again", table.increment(increment("r", 1, "f:q")));
    c.get("row", table, get("r").readAllVersions());
  }

  private void incrementDeleted(Case c) throws Exception {
    Table table = c.versions(5, "f");
    table.put(new Put(b("r")).addColumn(b("f"), b("q"), 10, Bytes.toBytes(10L)));
    table.delete(Cells.delete("r").addColumns(b("f"), b("q"), 20));
    c.say("result", table.increment(increment("r", 1, "f:q")));
    c.get("row", table, get("r"));
  }

  private void appends(Case c) throws Exception {
    Table table = c.versions(3, "z", "a");
    c.say("absent", table.append(append("r", "a:q=one")));
    c.say("present", table.append(append("r", "a:q=+two")));
    c.say("columns", table.append(append("r", "z:q=z", "a:q=+three", "a:p=p", "a:=e")));
    c.say("empty", table.append(append("r", "a:q=")));
    table.put(put("r", 1, "z:empty="));
    c.say("to-empty", table.append(append("r", "z:empty=x")));
    c.get("row", table, get("r"));
  }

  private void appendSilent(Case c) throws Exception {
    Table table = c.create("f");
    c.say("result", table.append(append("r", "f:q=a").setReturnResults(false)));
    c.say("result", table.append(append("r", "f:q=b").setReturnResults(false)));
    c.get("row", table, get("r"));
  }

  private void appendTimes(Case c) throws Exception {
    Table table = c.versions(5, "f");
    table.put(put("r", 10, "f:q=ten"));
    table.put(put("r", 20, "f:q=twenty"));
    c.say("old-one", table.append(append("r", "f:q=+").setTimeRange(5, 15)));
    c.say("none", table.append(append("r", "f:q=+").setTimeRange(30, 40)));
  }

  private void appendFuture(Case c) throws Exception {
    Table table = c.versions(5, "f");
    table.put(put("r", FUTURE, "f:q=v"));
    c.say("result", table.append(append("r", "f:q=+")));
    c.get("row", table, get("r").readAllVersions());
  }

  private void lifetime(Case c) throws Exception {
    Table table = c.create("f");
    c.say("increment", table.increment(increment("r", 5, "f:q").setTTL(3_600_000)));
    c.say("increment-moment", table.increment(increment("r", 5, "f:m").setTTL(1)));
    c.say("append-moment", table.append(append("r", "f:a=v").setTTL(1)));
    c.say("moment-ends", Case.until(() -> !table.exists(get("r", "f:m", "f:a"))));
    c.get("row", table, get("r"));
  }

  private void errors(Case c) throws Exception {
    Table table = c.create("f");
    c.failsAs("increment-absent-family", () -> table.increment(increment("r", 1, "g:q")));
    c.failsAs("append-absent-family", () -> table.append(append("r", "f:q=v", "g:q=v")));
    c.fails("increment-absent-table", () -> c.connection.getTable(c.other("none")).increment(increment("r", 1, "f:q")));
    c.fails("increment-nothing", () -> table.increment(new Increment(b("r"))));
    c.get("row", table, get("r"));
  }
}
