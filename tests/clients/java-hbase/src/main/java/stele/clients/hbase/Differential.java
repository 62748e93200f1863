package stele.clients.hbase;

import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.hbase.client.Connection;
import org.apache.hadoop.hbase.client.ConnectionFactory;

/**
 * Applies random sequences of operations to two servers: {@code Differential HBASE STELE SEEDS FIRST_SEED}, each
 * server as HOST:PORT.
 *
 * <p>Every observation must be equal. Otherwise the differing operations are printed, and the shortest sequence that
 * leads to the first of them. Ends with 1 if a seed differs.
 */
public final class Differential {
  /** Seeds that run at a time: most of their time is spent waiting for tables. */
  private static final int THREADS = 3;
  /** Attempts of a request. Failures are wanted, and only the split of a region needs more than one. */
  private static final int RETRIES = 4;
  /** Differences of a seed that are printed. */
  private static final int SHOWN_MAX = 6;

  private static final long DROP_SECONDS = 60;

  private final Comparison comparison;

  private Differential(Comparison comparison) {
    this.comparison = comparison;
  }

  public static void main(String[] arguments) throws Exception {
    if (arguments.length != 4) {
      System.err.println("usage: Differential HBASE STELE SEEDS FIRST_SEED");
      System.exit(2);
    }
    int seeds = Integer.parseInt(arguments[2]);
    long first = Long.parseLong(arguments[3]);
    ExecutorService pool = Executors.newCachedThreadPool();
    ExecutorService runs = Executors.newFixedThreadPool(THREADS);
    int differing = 0;
    try (Connection hbase = connect(arguments[0]); Connection stele = connect(arguments[1])) {
      Differential differential = new Differential(new Comparison(hbase, stele, pool));
      List<Future<Boolean>> equal = new ArrayList<>();
      for (long seed = first; seed < first + seeds; seed++) {
        long one = seed;
        equal.add(runs.submit(() -> differential.isEqual(one)));
      }
      for (Future<Boolean> seed : equal) {
        differing += seed.get() ? 0 : 1;
      }
      // The last tables are dropped meanwhile.
      pool.shutdown();
      pool.awaitTermination(DROP_SECONDS, TimeUnit.SECONDS);
    }
    System.out.println(seeds + " seeds, " + differing + " differ");
    System.exit(differing == 0 ? 0 : 1);
  }

  private static Connection connect(String address) throws Exception {
    Configuration configuration = Transcript.configuration(address);
    configuration.setInt("hbase.client.retries.number", RETRIES);
    return ConnectionFactory.createConnection(configuration);
  }

  /** Prints the differences of a seed; whether there are none. */
  private boolean isEqual(long seed) {
    String text;
    try {
      text = differences(seed);
    } catch (Exception error) {
      text = "seed " + seed + ": " + error + "\n";
    }
    // One call, so that those of another seed do not come between.
    System.out.print(text);
    System.out.flush();
    return text.isEmpty();
  }

  private String differences(long seed) throws Exception {
    Sequence sequence = Sequence.draw(seed);
    List<Comparison.Difference> differences = comparison.run(sequence, true);
    if (differences.isEmpty()) {
      return "";
    }
    StringBuilder text = new StringBuilder("seed " + seed + ": " + differences.size() + " differences\n");
    differences.stream().limit(SHOWN_MAX).forEach(difference -> text.append(difference.text()));
    Comparison.Difference first = differences.get(0);
    if (first.position() < 0) {
      // Only one of them has the table: there is nothing to shorten.
      return text.toString();
    }
    text.append(" the first after fewer operations:\n");
    Shrinking shrinking = new Shrinking(shorter -> last(shorter, comparison.run(shorter, false)));
    return text.append(shrinking.shrink(sequence, first.position(), first)).toString();
  }

  /** The difference at the last step. */
  private static Comparison.Difference last(Sequence sequence, List<Comparison.Difference> differences) {
    int last = sequence.steps().size() - 1;
    return differences.stream().filter(difference -> difference.position() == last).findFirst().orElse(null);
  }
}
