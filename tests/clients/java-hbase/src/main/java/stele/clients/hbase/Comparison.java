package stele.clients.hbase;

import java.io.IOException;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Future;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.hadoop.hbase.TableName;
import org.apache.hadoop.hbase.client.Connection;

/** Applies sequences to a table of each of two servers, and compares the observations. */
final class Comparison {
  /** A step at which the servers differ. */
  record Difference(int position, Step step, String expected, String found) {
    String text() {
      return "  " + step.text() + "\n" + lines("HBase", expected, found) + lines("Stele", found, expected);
    }

    /** The lines that the other server does not have; all if it has all of them, in another order or number. */
    private static String lines(String server, String observation, String other) {
      List<String> lines = new ArrayList<>(observation.lines().toList());
      List<String> others = other.lines().toList();
      if (!others.containsAll(lines)) {
        lines.removeAll(others);
      }
      return "    " + server + ": " + String.join("\n           ", lines) + "\n";
    }
  }

  /** Both servers take the time of a write from the clock of this machine; the next write is to have a later one. */
  private static final long CLOCK_MS = 2;
  /** Simpler reads that are tried at one state of the tables; each takes a millisecond. */
  private static final int READS_MAX = 300;

  private final Connection expected;
  private final Connection found;
  private final ExecutorService pool;
  /** Of the tables so far. */
  private final AtomicInteger number = new AtomicInteger();

  Comparison(Connection expected, Connection found, ExecutorService pool) {
    this.expected = expected;
    this.found = found;
    this.pool = pool;
  }

  /** All differences. Reads are simplified where they differ. */
  List<Difference> run(Sequence sequence, boolean simplifies) throws Exception {
    TableName name = TableName.valueOf("random_" + number.incrementAndGet());
    DrawnTable first = new DrawnTable(expected, name);
    DrawnTable second = new DrawnTable(found, name);
    try {
      return run(sequence, simplifies, first, second);
    } finally {
      // The next table has another name.
      pool.submit(first::drop);
      pool.submit(second::drop);
    }
  }

  private List<Difference> run(Sequence sequence, boolean simplifies, DrawnTable first, DrawnTable second)
      throws Exception {
    List<Difference> differences = new ArrayList<>();
    List<Step> steps = new ArrayList<>(List.of(creation(sequence.schema())));
    steps.addAll(sequence.steps());
    for (int position = -1; position < sequence.steps().size(); position++) {
      Step step = steps.get(position + 1);
      Difference difference = compare(position, step, first, second);
      if (difference != null) {
        differences.add(step.isRead() && simplifies ? simplified(difference, first, second) : difference);
      }
      if (position < 0 && !first.admin.tableExists(first.name)) {
        throw new IOException("HBase refuses the drawn table");
      }
    }
    return differences;
  }

  private static Step creation(Schema schema) {
    return new Step(Step.Kind.STORAGE, Drawn.leaf("create", parts -> table -> {
      table.create(schema);
      return "done";
    }));
  }

  /** The difference at a step, if there is one. */
  private Difference compare(int position, Step step, DrawnTable first, DrawnTable second) throws Exception {
    Future<String> other = pool.submit(() -> step.observe(second));
    String one = step.observe(first);
    String two = other.get();
    if (step.kind() == Step.Kind.WRITE) {
      Thread.sleep(CLOCK_MS);
    }
    return one.equals(two) ? null : new Difference(position, step, one, two);
  }

  private Difference simplified(Difference difference, DrawnTable first, DrawnTable second) throws Exception {
    Difference least = difference;
    int left = READS_MAX;
    boolean changes = true;
    while (changes && left > 0) {
      changes = false;
      for (Step simpler : least.step().simpler()) {
        Difference other = left-- > 0 ? compare(least.position(), simpler, first, second) : null;
        if (other != null) {
          least = other;
          changes = true;
          break;
        }
      }
    }
    return least;
  }
}
