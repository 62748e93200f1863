package stele.clients.hbase;

import static stele.clients.hbase.Cells.b;
import static stele.clients.hbase.Cells.get;
import static stele.clients.hbase.Cells.increment;
import static stele.clients.hbase.Cells.put;

import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.atomic.AtomicBoolean;
import org.apache.hadoop.hbase.client.CheckAndMutate;
import org.apache.hadoop.hbase.client.Result;
import org.apache.hadoop.hbase.client.RowMutations;
import org.apache.hadoop.hbase.client.Table;
import org.apache.hadoop.hbase.util.Bytes;

/** Operations on one row by several threads at once. */
final class Concurrency extends Area {
  private interface Work {
    void run(int worker, Table table) throws Exception;
  }

  Concurrency() {
    super("concurrency", true);
    add("increments", this::increments);
    add("appends", this::appends);
    add("checked-counter", this::checkedCounter);
    add("whole-rows", this::wholeRows);
  }

  private static void together(Case c, int workers, Work work) throws Exception {
    ExecutorService pool = Executors.newFixedThreadPool(workers);
    List<Future<?>> ends = new ArrayList<>();
    for (int i = 0; i < workers; i++) {
      int worker = i;
      ends.add(pool.submit(() -> {
        try (Table table = c.connection.getTable(c.name)) {
          work.run(worker, table);
        }
        return null;
      }));
    }
    for (Future<?> end : ends) {
      end.get();
    }
    pool.shutdown();
  }

  private void increments(Case c) throws Exception {
    Table table = c.create("f");
    together(c, 8, (worker, own) -> {
      for (int i = 0; i < 500; i++) {
        own.increment(increment("r", 1, "f:n"));
      }
    });
    c.say("sum", Bytes.toLong(table.get(get("r")).getValue(b("f"), b("n"))));
  }

  private void appends(Case c) throws Exception {
    Table table = c.create("f");
    together(c, 4, (worker, own) -> {
      for (int i = 0; i < 100; i++) {
        own.append(Cells.append("r", "f:q=" + worker));
      }
    });
    byte[] value = table.get(get("r")).getValue(b("f"), b("q"));
    int[] counts = new int[4];
    for (byte one : value) {
      counts[one - '0']++;
    }
    c.say("length", value.length);
    c.say("counts", java.util.Arrays.toString(counts));
  }

  /** Each worker adds one as often as its check succeeds; none may be lost. */
  private void checkedCounter(Case c) throws Exception {
    Table table = c.create("f");
    table.put(put("r", 1, "f:q=0"));
    together(c, 4, (worker, own) -> {
      for (int done = 0; done < 50; ) {
        String now = Bytes.toString(own.get(get("r")).getValue(b("f"), b("q")));
        int next = Integer.parseInt(now) + 1;
        done += own.checkAndMutate(CheckAndMutate.newBuilder(b("r")).ifEquals(b("f"), b("q"), b(now))
            .build(put("r", next + 1, "f:q=" + next))).isSuccess() ? 1 : 0;
      }
    });
    c.get("end", table, get("r"));
  }

  /** A reader never sees half of a change, be it of two families. */
  private void wholeRows(Case c) throws Exception {
    Table table = c.create("a", "b");
    table.put(put("r", 1, "a:q=0", "b:q=0"));
    AtomicBoolean ended = new AtomicBoolean();
    int[] torn = new int[1];
    together(c, 2, (worker, own) -> {
      if (worker == 0) {
        for (int i = 1; i <= 300; i++) {
          own.mutateRow(new RowMutations(b("r")).add(List.of(put("r", 1 + i, "a:q=" + i),
              put("r", 1 + i, "b:q=" + i))));
        }
        ended.set(true);
      } else {
        while (!ended.get()) {
          Result result = own.get(get("r"));
          boolean same = Bytes.equals(result.getValue(b("a"), b("q")), result.getValue(b("b"), b("q")));
          torn[0] += same ? 0 : 1;
        }
      }
    });
    c.say("torn", torn[0]);
    c.get("end", table, get("r"));
  }
}
