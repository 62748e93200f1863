package stele.clients.hbase;

import static stele.clients.hbase.Cells.append;
import static stele.clients.hbase.Cells.b;
import static stele.clients.hbase.Cells.delete;
import static stele.clients.hbase.Cells.get;
import static stele.clients.hbase.Cells.increment;
import static stele.clients.hbase.Cells.put;
import static stele.clients.hbase.Cells.scan;

import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ForkJoinPool;
import java.util.regex.Pattern;
import org.apache.hadoop.hbase.client.AsyncAdmin;
import org.apache.hadoop.hbase.client.AsyncBufferedMutator;
import org.apache.hadoop.hbase.client.AsyncConnection;
import org.apache.hadoop.hbase.client.AsyncTable;
import org.apache.hadoop.hbase.client.CheckAndMutate;
import org.apache.hadoop.hbase.client.ConnectionFactory;
import org.apache.hadoop.hbase.client.Result;
import org.apache.hadoop.hbase.client.ResultScanner;
import org.apache.hadoop.hbase.client.Row;
import org.apache.hadoop.hbase.client.RowMutations;
import org.apache.hadoop.hbase.client.Scan;

/** The asynchronous client, whose requests and retries are a program of their own. */
final class Async extends Area {
  private interface Body {
    void run(Case c, AsyncConnection connection) throws Exception;
  }

  Async() {
    super("async");
    asynchronous("data", this::data);
    asynchronous("scans", this::scans);
    asynchronous("batch", this::batch);
    asynchronous("checks", this::checks);
    asynchronous("buffered", this::buffered);
    asynchronous("pipelined", this::pipelined);
    asynchronous("errors", this::errors);
    asynchronous("admin", this::admin);
    asynchronous("locations", this::locations);
  }

  private void asynchronous(String name, Body body) {
    add(name, c -> {
      try (AsyncConnection connection = ConnectionFactory.createAsyncConnection(c.configuration).get()) {
        body.run(c, connection);
      }
    });
  }

  private static AsyncTable<?> table(Case c, AsyncConnection connection) {
    return connection.getTable(c.name, ForkJoinPool.commonPool());
  }

  private void data(Case c, AsyncConnection connection) throws Exception {
    c.versions(3, "f");
    AsyncTable<?> table = table(c, connection);
    table.put(put("r", 1, "f:q=v")).get();
    c.say("get", table.get(get("r")).get());
    c.say("exists", table.exists(get("r")).get());
    c.say("increment", table.increment(increment("r", 4, "f:n")).get());
    c.say("append", table.append(append("r", "f:q=+")).get());
    c.say("mutate-row", table.mutateRow(new RowMutations(b("r")).add(List.of(put("r", 2, "f:p=v"),
        delete("r").addColumns(b("f"), b("q"))))).get());
    table.delete(delete("r").addColumns(b("f"), b("n"))).get();
    c.say("left", table.get(get("r")).get());
  }

  private void scans(Case c, AsyncConnection connection) throws Exception {
    c.create(Case.described(c.name, 3, "f"), "r2");
    AsyncTable<?> table = table(c, connection);
    for (int i = 0; i < 5; i++) {
      table.put(put("r" + i, 1, "f:q=v" + i, "f:p=w")).get();
    }
    c.say("all", table.scanAll(scan()).get());
    c.say("reversed", table.scanAll(scan("f:q").setReversed(true).setCaching(1)).get());
    c.say("limit", table.scanAll(scan("f:q").setLimit(3)).get());
    c.say("small", table.scanAll(scan("f:q").setLimit(1).setReadType(Scan.ReadType.PREAD)).get());
    c.say("batch", table.scanAll(scan().setBatch(1).withStopRow(b("r2"))).get());
    c.say("size", table.scanAll(scan().setMaxResultSize(1)).get());
    try (ResultScanner scanner = table.getScanner(scan("f:q").setCaching(2))) {
      c.rest("scanner", scanner);
    }
  }

  private void batch(Case c, AsyncConnection connection) throws Exception {
    c.create(Case.described(c.name, 1, "f"), "m");
    AsyncTable<?> table = table(c, connection);
    List<CompletableFuture<Object>> futures = table.batch(List.<Row>of(put("a", 1, "f:q=v"), put("bad", 1, "g:q=v"),
        increment("z", 2, "f:n"), get("none"), append("y", "f:q=+")));
    for (CompletableFuture<Object> future : futures) {
      c.failsAs("end", () -> c.say("result", future.get()));
    }
    c.say("get-all", table.getAll(List.of(get("z"), get("none"), get("a"))).get());
    c.say("exists-all", table.existsAll(List.of(get("z"), get("none"))).get());
    table.putAll(List.of(put("b", 1, "f:q=v"), put("x", 1, "f:q=v"))).get();
    table.deleteAll(List.of(delete("a"), delete("z"))).get();
    c.say("left", table.scanAll(scan()).get());
  }

  private void checks(Case c, AsyncConnection connection) throws Exception {
    c.create("f");
    AsyncTable<?> table = table(c, connection);
    for (String value : List.of("v", "w")) {
      c.say("set-" + value, table.checkAndMutate(
          CheckAndMutate.newBuilder(b("r")).ifNotExists(b("f"), b("q")).build(put("r", 1, "f:q=" + value))).get());
    }
    c.say("all", table.checkAndMutateAll(List.of(
        CheckAndMutate.newBuilder(b("r")).ifEquals(b("f"), b("q"), b("v")).build(increment("r", 1, "f:n")),
        CheckAndMutate.newBuilder(b("r")).ifEquals(b("f"), b("q"), b("x")).build(delete("r")))).get());
  }

  private void buffered(Case c, AsyncConnection connection) throws Exception {
    c.create(Case.described(c.name, 1, "f"), "0500");
    try (AsyncBufferedMutator mutator = connection.getBufferedMutator(c.name)) {
      List<CompletableFuture<Void>> ends = new ArrayList<>();
      for (int i = 0; i < 1_000; i++) {
        ends.add(mutator.mutate(put(String.format("%04d", i), 1, "f:q=v")));
      }
      mutator.flush();
      CompletableFuture.allOf(ends.toArray(CompletableFuture[]::new)).get();
    }
    c.say("rows", table(c, connection).scanAll(scan()).get().size());
  }

  /** Many calls on one connection at once; each gets the answer to its own question. */
  private void pipelined(Case c, AsyncConnection connection) throws Exception {
    c.create("f");
    AsyncTable<?> table = table(c, connection);
    List<CompletableFuture<Void>> puts = new ArrayList<>();
    for (int i = 0; i < 500; i++) {
      puts.add(table.put(put("r" + i, 1, "f:q=" + i)));
    }
    CompletableFuture.allOf(puts.toArray(CompletableFuture[]::new)).get();
    List<CompletableFuture<Result>> gets = new ArrayList<>();
    for (int i = 0; i < 500; i++) {
      gets.add(table.get(get("r" + i)));
    }
    int right = 0;
    for (int i = 0; i < 500; i++) {
      right += Show.bytes(gets.get(i).get().value()).equals("" + i) ? 1 : 0;
    }
    c.say("right", right);
  }

  private void errors(Case c, AsyncConnection connection) throws Exception {
    c.create("f");
    AsyncTable<?> table = table(c, connection);
    c.failsAs("absent-family", () -> table.put(put("r", 1, "g:q=v")).get());
    c.failsAs("absent-family-scan", () -> table.scanAll(scan("g")).get());
    c.failsAs("absent-table", () -> connection.getTable(c.other("none")).get(get("r")).get());
  }

  private void admin(Case c, AsyncConnection connection) throws Exception {
    AsyncAdmin admin = connection.getAdmin();
    c.say("exists", admin.tableExists(c.name).get());
    admin.createTable(Case.described(c.name, 1, "f"), Cells.all("m")).get();
    c.say("exists", admin.tableExists(c.name).get());
    c.say("available", admin.isTableAvailable(c.name).get());
    c.say("list", admin.listTableNames(Pattern.compile(c.name.getNameAsString()), false).get());
    c.say("regions", admin.getRegions(c.name).get().size());
    c.failsAs("create-again", () -> admin.createTable(Case.described(c.name, 1, "f")).get());
    admin.disableTable(c.name).get();
    c.say("enabled", admin.isTableEnabled(c.name).get());
    admin.truncateTable(c.name, true).get();
    c.say("regions-truncated", admin.getRegions(c.name).get().size());
    admin.flush(c.name).get();
    admin.disableTable(c.name).get();
    admin.deleteTable(c.name).get();
    c.say("exists", admin.tableExists(c.name).get());
  }

  private void locations(Case c, AsyncConnection connection) throws Exception {
    c.create(Case.described(c.name, 1, "f"), "g", "p");
    for (String row : List.of("", "a", "g", "o", "p", "z")) {
      var region = connection.getRegionLocator(c.name).getRegionLocation(b(row)).get().getRegion();
      c.say("of-" + row, Show.bytes(region.getStartKey()) + " to " + Show.bytes(region.getEndKey()));
    }
    c.say("all", connection.getRegionLocator(c.name).getAllRegionLocations().get().size());
  }
}
