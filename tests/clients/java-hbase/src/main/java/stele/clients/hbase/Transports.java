package stele.clients.hbase;

import static stele.clients.hbase.Cells.append;
import static stele.clients.hbase.Cells.b;
import static stele.clients.hbase.Cells.delete;
import static stele.clients.hbase.Cells.get;
import static stele.clients.hbase.Cells.increment;
import static stele.clients.hbase.Cells.put;
import static stele.clients.hbase.Cells.scan;

import java.util.List;
import java.util.Map;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.hbase.client.CheckAndMutate;
import org.apache.hadoop.hbase.client.Connection;
import org.apache.hadoop.hbase.client.ConnectionFactory;
import org.apache.hadoop.hbase.client.RowMutations;
import org.apache.hadoop.hbase.client.Table;

/** The same calls by clients that put cells on the wire differently. */
final class Transports extends Area {
  private static final String CODEC = "hbase.client.rpc.codec";
  private static final String COMPRESSOR = "hbase.client.rpc.compressor";
  private static final String GZIP = "org.apache.hadoop.io.compress.GzipCodec";

  Transports() {
    super("transports");
    transport("plain", Map.of());
    transport("no-codec", Map.of("hbase.client.default.rpc.codec", "", CODEC, ""));
    transport("codec-with-tags", Map.of(CODEC, "org.apache.hadoop.hbase.codec.KeyValueCodecWithTags"));
    transport("cell-codec", Map.of(CODEC, "org.apache.hadoop.hbase.codec.CellCodec"));
    transport("cell-codec-with-tags", Map.of(CODEC, "org.apache.hadoop.hbase.codec.CellCodecWithTags"));
    transport("compressor", Map.of(COMPRESSOR, GZIP));
    transport("compressor-deflate", Map.of(COMPRESSOR, "org.apache.hadoop.io.compress.DefaultCodec"));
    transport("blocking-client", Map.of("hbase.rpc.client.impl", "org.apache.hadoop.hbase.ipc.BlockingRpcClient"));
    transport("blocking-client-compressor",
        Map.of("hbase.rpc.client.impl", "org.apache.hadoop.hbase.ipc.BlockingRpcClient", COMPRESSOR, GZIP));
    transport("several-connections", Map.of("hbase.client.ipc.pool.size", "4"));
  }

  private void transport(String name, Map<String, String> settings) {
    add(name, c -> {
      Configuration configuration = new Configuration(c.configuration);
      settings.forEach(configuration::set);
      c.create(Case.described(c.name, 3, "f", "e"), "m");
      try (Connection connection = ConnectionFactory.createConnection(configuration)) {
        calls(c, connection.getTable(c.name));
      }
    });
  }

  private static void calls(Case c, Table table) throws Exception {
    table.put(put("a", 1, "f:q=v", "f:empty=", "f:=e", "e:q=w"));
    table.put(List.of(put("b", 1, "f:q=v"), put("z", 2, "f:q=v", "f:q=w"), put("a", 2, "f:q=newer")));
    c.get("get", table, get("a").readAllVersions());
    c.get("get-absent", table, get("none"));
    c.say("exists", table.exists(get("a", "f:empty")));
    c.say("gets", table.get(List.of(get("z"), get("none"), get("b"))));
    c.scan("scan", table, scan());
    c.scan("scan-reversed", table, scan().setReversed(true).setCaching(1));
    c.scan("scan-partial", table, scan().setMaxResultSize(1).setAllowPartialResults(true));
    c.scan("scan-batch", table, scan().setBatch(2));
    c.say("increment", table.increment(increment("n", 5, "f:n")));
    c.say("append", table.append(append("b", "f:q=+")));
    c.say("check", table.checkAndMutate(
        CheckAndMutate.newBuilder(b("b")).ifEquals(b("f"), b("q"), b("v+")).build(increment("b", 1, "f:n"))));
    c.say("row", table.mutateRow(new RowMutations(b("b")).add(List.of(put("b", 3, "f:p=v"),
        delete("b").addColumns(b("f"), b("q"))))));
    Object[] results = new Object[6];
    c.failsAs("batch", () -> table.batch(List.of(get("a", "e"), put("c", 1, "f:q=c"), increment("n", 1, "f:n"),
        put("d", 1, "g:q=v"),
        delete("z"), get("none")), results));
    c.say("results", results);
    table.delete(delete("a").addColumn(b("f"), b("q")));
    c.everything("raw", table);
    StringBuilder large = new StringBuilder();
    for (int i = 0; i < 40_000; i++) {
      large.append(i * 7919 % 100_003).append(' ');
    }
    table.put(put("large", 1, "f:q=" + large));
    c.get("large", table, get("large"));
  }
}
