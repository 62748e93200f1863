package stele.clients.hbase;

import static stele.clients.hbase.Cells.b;
import static stele.clients.hbase.Cells.get;
import static stele.clients.hbase.Cells.put;
import static stele.clients.hbase.Cells.scan;

import com.google.protobuf.Message;
import java.math.BigDecimal;
import java.util.concurrent.ForkJoinPool;
import org.apache.hadoop.hbase.client.AsyncConnection;
import org.apache.hadoop.hbase.client.AsyncTable;
import org.apache.hadoop.hbase.client.ConnectionFactory;
import org.apache.hadoop.hbase.client.Delete;
import org.apache.hadoop.hbase.client.Mutation;
import org.apache.hadoop.hbase.client.Put;
import org.apache.hadoop.hbase.client.Scan;
import org.apache.hadoop.hbase.client.Table;
import org.apache.hadoop.hbase.client.TableDescriptorBuilder;
import org.apache.hadoop.hbase.client.coprocessor.AggregationClient;
import org.apache.hadoop.hbase.client.coprocessor.AsyncAggregationClient;
import org.apache.hadoop.hbase.client.coprocessor.BigDecimalColumnInterpreter;
import org.apache.hadoop.hbase.client.coprocessor.DoubleColumnInterpreter;
import org.apache.hadoop.hbase.client.coprocessor.LongColumnInterpreter;
import org.apache.hadoop.hbase.coprocessor.ColumnInterpreter;
import org.apache.hadoop.hbase.filter.PrefixFilter;
import org.apache.hadoop.hbase.protobuf.ProtobufUtil;
import org.apache.hadoop.hbase.protobuf.generated.ClientProtos.MutationProto.MutationType;
import org.apache.hadoop.hbase.protobuf.generated.MultiRowMutationProtos.MultiRowMutationService;
import org.apache.hadoop.hbase.protobuf.generated.MultiRowMutationProtos.MutateRowsRequest;
import org.apache.hadoop.hbase.util.Bytes;

/** The services of coprocessors that HBase ships: aggregates, and mutations of several rows. */
final class Endpoints extends Area {
  private static final String AGGREGATES = "org.apache.hadoop.hbase.coprocessor.AggregateImplementation";
  private static final String MUTATIONS = "org.apache.hadoop.hbase.coprocessor.MultiRowMutationEndpoint";
  private static final String[] ROWS = {"a", "b", "c", "n", "o", "p"};

  Endpoints() {
    super("endpoints");
    add("longs", c -> aggregates(c, new LongColumnInterpreter(), n -> Bytes.toBytes(n * 100L)));
    add("doubles", c -> aggregates(c, new DoubleColumnInterpreter(), n -> Bytes.toBytes(n / 4.0)));
    add("decimals", c -> aggregates(c, new BigDecimalColumnInterpreter(),
        n -> Bytes.toBytes(BigDecimal.valueOf(n * 1005L, 3))));
    add("other-values", this::otherValues);
    add("selected", this::selected);
    add("empty", this::empty);
    add("asynchronous", this::asynchronous);
    add("several-rows", this::severalRows);
  }

  private interface Value {
    byte[] of(int n);
  }

  /** A table of two regions with the services. */
  private static Table table(Case c) throws Exception {
    return c.create(TableDescriptorBuilder.newBuilder(Case.described(c.name, 1, "f", "g")).setCoprocessor(AGGREGATES)
        .setCoprocessor(MUTATIONS).build(), "m");
  }

  private static void fill(Table table, Value value) throws Exception {
    for (int i = 0; i < ROWS.length; i++) {
      int n = 3 * i - 4;
      table.put(new Put(b(ROWS[i])).addColumn(b("f"), b("q"), value.of(n)).addColumn(b("f"), b("p"), value.of(2 * n))
          .addColumn(b("g"), b("q"), value.of(10)));
    }
  }

  private <R, S, P extends Message, Q extends Message, T extends Message> void aggregates(Case c,
      ColumnInterpreter<R, S, P, Q, T> numbers, Value value) throws Exception {
    Table table = table(c);
    fill(table, value);
    all(c, "column", table, numbers, scan("f:q"));
    all(c, "family", table, numbers, scan("f"));
  }

  private <R, S, P extends Message, Q extends Message, T extends Message> void all(Case c, String step, Table table,
      ColumnInterpreter<R, S, P, Q, T> numbers, Scan scan) throws Exception {
    try (AggregationClient client = new AggregationClient(c.configuration)) {
      said(c, step + ".rows", () -> client.rowCount(table, numbers, scan));
      said(c, step + ".max", () -> client.max(table, numbers, scan));
      said(c, step + ".min", () -> client.min(table, numbers, scan));
      said(c, step + ".sum", () -> client.sum(table, numbers, scan));
      said(c, step + ".average", () -> client.avg(table, numbers, scan));
      said(c, step + ".deviation", () -> client.std(table, numbers, scan));
      said(c, step + ".median", () -> client.median(table, numbers, scan));
    }
  }

  private interface Answer {
    Object get() throws Throwable;
  }

  private static void said(Case c, String step, Answer answer) {
    c.failsAs(step, () -> {
      try {
        c.say(step + ".is", String.valueOf(answer.get()));
      } catch (Exception | Error error) {
        throw error;
      } catch (Throwable other) {
        throw new Exception(other);
      }
    });
  }

  private void otherValues(Case c) throws Exception {
    Table table = table(c);
    table.put(put("a", "f:q=seven77", "f:p="));
    table.put(new Put(b("b")).addColumn(b("f"), b("q"), Bytes.toBytes(5L)));
    LongColumnInterpreter numbers = new LongColumnInterpreter();
    all(c, "some", table, numbers, scan("f:q"));
    all(c, "none", table, numbers, scan("f:p"));
  }

  private void selected(Case c) throws Exception {
    Table table = table(c);
    fill(table, n -> Bytes.toBytes((long) n));
    LongColumnInterpreter numbers = new LongColumnInterpreter();
    all(c, "range", table, numbers, scan("f:q").withStartRow(b("b")).withStopRow(b("o")));
    all(c, "within-region", table, numbers, scan("f:q").withStartRow(b("b")).withStopRow(b("c"), true));
    all(c, "filter", table, numbers, scan("f:q").setFilter(new PrefixFilter(b("n"))));
    try (AggregationClient client = new AggregationClient(c.configuration)) {
      c.failsAs("all-rows", () -> c.say("all-rows.count", rows(client, table, numbers, new Scan())));
      c.failsAs("absent-family", () -> rows(client, table, numbers, scan("z")));
    }
  }

  private static long rows(AggregationClient client, Table table, LongColumnInterpreter numbers, Scan scan)
      throws Exception {
    try {
      return client.rowCount(table, numbers, scan);
    } catch (Exception | Error error) {
      throw error;
    } catch (Throwable other) {
      throw new Exception(other);
    }
  }

  private void empty(Case c) throws Exception {
    Table table = table(c);
    LongColumnInterpreter numbers = new LongColumnInterpreter();
    try (AggregationClient client = new AggregationClient(c.configuration)) {
      said(c, "rows", () -> client.rowCount(table, numbers, scan("f:q")));
      said(c, "max", () -> client.max(table, numbers, scan("f:q")));
      said(c, "sum", () -> client.sum(table, numbers, scan("f:q")));
    }
  }

  private void asynchronous(Case c) throws Exception {
    fill(table(c), n -> Bytes.toBytes((long) n));
    LongColumnInterpreter numbers = new LongColumnInterpreter();
    try (AsyncConnection connection = ConnectionFactory.createAsyncConnection(c.configuration).get()) {
      AsyncTable<?> table = connection.getTable(c.name, ForkJoinPool.commonPool());
      c.say("rows", AsyncAggregationClient.rowCount(table, numbers, scan("f:q")).get());
      c.say("max", AsyncAggregationClient.max(table, numbers, scan("f:q")).get());
      c.say("min", AsyncAggregationClient.min(table, numbers, scan("f:q")).get());
      c.say("sum", AsyncAggregationClient.sum(table, numbers, scan("f:q")).get());
      c.say("average", String.valueOf(AsyncAggregationClient.avg(table, numbers, scan("f:q")).get()));
      c.say("deviation", String.valueOf(AsyncAggregationClient.std(table, numbers, scan("f:q")).get()));
      c.say("median", AsyncAggregationClient.median(connection.getTable(c.name), numbers, scan("f:q")).get());
    }
  }

  private static void mutate(Table table, Mutation... mutations) throws Exception {
    MutateRowsRequest.Builder request = MutateRowsRequest.newBuilder();
    for (Mutation mutation : mutations) {
      MutationType type = mutation instanceof Put ? MutationType.PUT : MutationType.DELETE;
      request.addMutationRequest(ProtobufUtil.toMutation(type, mutation));
    }
    MultiRowMutationService.newBlockingStub(table.coprocessorService(mutations[0].getRow()))
        .mutateRows(null, request.build());
  }

  private void severalRows(Case c) throws Exception {
    Table table = table(c);
    mutate(table, put("a", 1, "f:q=1"), put("b", 2, "f:q=2", "g:p=3"));
    c.scan("puts", table, new Scan());
    mutate(table, new Delete(b("a"), 5), put("c", 3, "f:q=4"), new Delete(b("b")).addColumns(b("f"), b("q"), 9));
    c.scan("puts-and-deletes", table, new Scan());
    mutate(table, put("d", 1, "f:q=first"), put("d", 1, "f:q=second"));
    c.get("same-row", table, get("d"));
    c.failsAs("absent-family", () -> mutate(table, put("e", 1, "f:q=1"), put("e", 1, "z:q=1")));
    c.get("nothing-written", table, get("e"));
  }
}
