import com.google.cloud.bigtable.data.v2.BigtableDataClient;
import com.google.cloud.bigtable.data.v2.BigtableDataSettings;
import com.google.cloud.bigtable.data.v2.models.BulkMutation;
import com.google.cloud.bigtable.data.v2.models.Query;
import com.google.cloud.bigtable.data.v2.models.ReadModifyWriteRow;
import com.google.cloud.bigtable.data.v2.models.Row;
import com.google.cloud.bigtable.data.v2.models.RowMutation;
import com.google.cloud.bigtable.data.v2.models.TableId;
import com.google.protobuf.ByteString;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.SplittableRandom;

/**
 * Runs one phase of a measurement through Google's Java client; see tests/clients/go/cmd/measure for the phases.
 *
 * <p>Prints "ready" after a warm-up and waits for a line, then measures, prints "done" and a line of JSON. The loop is
 * closed. The Go program makes and fills the tables.
 */
public final class Measure {
  private static final String FAMILY = "f";
  private static final ByteString COLUMN = ByteString.copyFromUtf8("q");
  /** Every write of a cell has the same timestamp, so that all servers keep one version. */
  private static final long TIMESTAMP_MICROS = 1000;
  private static final int BATCH_ROWS = 100;
  private static final int SCAN_ROWS = 1000;
  private static final double ZIPF_EXPONENT = 0.99;

  private interface Operation {
    /** Does one thing to random rows and returns the number of rows. */
    int run(SplittableRandom random) throws Exception;
  }

  private interface Chooser {
    int next(SplittableRandom random);
  }

  /** What the callers of a loop did. */
  private static final class Outcome {
    final List<long[]> latencies = new ArrayList<>();
    long rows;
    long errors;
    Exception first;
    double seconds;

    synchronized void add(long[] nanos, long rows, long errors, Exception first) {
      latencies.add(nanos);
      this.rows += rows;
      this.errors += errors;
      this.first = this.first == null ? first : this.first;
    }

    String json() {
      long[] sorted = latencies.stream().flatMapToLong(Arrays::stream).sorted().toArray();
      return String.format(
          Locale.ROOT,
          "{\"operations\":%d,\"rows\":%d,\"errors\":%d,\"seconds\":%f,\"per_second\":%f,"
              + "\"p50_us\":%d,\"p99_us\":%d,\"p999_us\":%d,\"max_us\":%d}",
          sorted.length, rows, errors, seconds, sorted.length / seconds,
          at(sorted, 0.5), at(sorted, 0.99), at(sorted, 0.999), at(sorted, 1));
    }

    private static long at(long[] sorted, double quantile) {
      int last = sorted.length - 1;
      return last < 0 ? 0 : sorted[Math.min(last, (int) (sorted.length * quantile))] / 1000;
    }
  }

  private final BigtableDataClient client;
  private final TableId table;
  private final int rows;
  private final int valueBytes;

  private Measure(BigtableDataClient client, String table, int rows, int valueBytes) {
    this.client = client;
    this.table = TableId.of(table);
    this.rows = rows;
    this.valueBytes = valueBytes;
  }

  public static void main(String[] arguments) throws Exception {
    Map<String, String> options = new HashMap<>();
    for (int n = 1; n + 1 < arguments.length; n += 2) {
      options.put(arguments[n], arguments[n + 1]);
    }
    String[] address = options.get("-address").split(":");
    int callers = Integer.parseInt(options.getOrDefault("-callers", "64"));
    double seconds = Double.parseDouble(options.getOrDefault("-seconds", "10"));
    // A JVM compiles its hot code only after thousands of calls.
    double warmUp = Double.parseDouble(options.getOrDefault("-warm-up", "5"));
    BigtableDataSettings settings =
        BigtableDataSettings.newBuilderForEmulator(address[0], Integer.parseInt(address[1]))
            .setProjectId("measure")
            .setInstanceId("measure")
            .build();
    try (BigtableDataClient client = BigtableDataClient.create(settings)) {
      Measure measure =
          new Measure(
              client,
              options.getOrDefault("-table", "measure"),
              Integer.parseInt(options.getOrDefault("-rows", "200000")),
              Integer.parseInt(options.getOrDefault("-value-bytes", "1000")));
      Operation operation = measure.phase(arguments[0]);
      loop(operation, callers, warmUp, 1);
      System.out.println("ready");
      // At the end of input it measures, too: then nobody watches the server.
      new BufferedReader(new InputStreamReader(System.in)).readLine();
      Outcome outcome = loop(operation, callers, seconds, 1001);
      System.out.println("done");
      if (outcome.errors > 0) {
        System.err.println(outcome.errors + " errors, the first: " + outcome.first);
      }
      System.out.println(outcome.json());
    }
  }

  private Operation phase(String name) {
    Chooser uniform = random -> random.nextInt(rows);
    switch (name) {
      case "read":
        return random -> read(uniform.next(random));
      case "zipf":
        Chooser zipf = zipf();
        return random -> read(zipf.next(random));
      case "write":
        return this::write;
      case "mix":
        return random -> random.nextInt(10) < 7 ? read(uniform.next(random)) : write(random);
      case "increment":
        return this::increment;
      case "batch":
        return this::batch;
      case "scan":
        return this::scan;
      default:
        throw new IllegalArgumentException("unknown phase " + name);
    }
  }

  /** As in the Go program. */
  private static String rowKey(int number) {
    return String.format("%016x", number * 0x9e3779b97f4a7c15L);
  }

  private ByteString value(SplittableRandom random) {
    byte[] value = new byte[valueBytes];
    random.nextBytes(value);
    return ByteString.copyFrom(value);
  }

  private int read(int number) {
    Row row = client.readRow(table, rowKey(number));
    if (row == null || row.getCells().size() != 1) {
      throw new IllegalStateException("row " + number + " has not one cell: " + row);
    }
    return 1;
  }

  private int write(SplittableRandom random) {
    String key = rowKey(random.nextInt(rows));
    client.mutateRow(RowMutation.create(table, key).setCell(FAMILY, COLUMN, TIMESTAMP_MICROS, value(random)));
    return 1;
  }

  private int increment(SplittableRandom random) {
    client.readModifyWriteRow(
        ReadModifyWriteRow.create(table, rowKey(random.nextInt(rows))).increment(FAMILY, "n", 1));
    return 1;
  }

  private int batch(SplittableRandom random) {
    BulkMutation bulk = BulkMutation.create(table);
    for (int n = 0; n < BATCH_ROWS; n++) {
      bulk.add(
          rowKey(random.nextInt(rows)),
          com.google.cloud.bigtable.data.v2.models.Mutation.create()
              .setCell(FAMILY, COLUMN, TIMESTAMP_MICROS, value(random)));
    }
    client.bulkMutateRows(bulk);
    return BATCH_ROWS;
  }

  private int scan(SplittableRandom random) {
    Query query = Query.create(table).range(rowKey(random.nextInt(rows)), null).limit(SCAN_ROWS);
    int count = 0;
    for (Row row : client.readRows(query)) {
      count++;
    }
    if (count == 0) {
      throw new IllegalStateException("a scan gave no row, not even the first");
    }
    return count;
  }

  /** By the sums of all weights; the ranks are scattered by {@link #rowKey}. */
  private Chooser zipf() {
    double[] sums = new double[rows];
    double sum = 0;
    for (int n = 0; n < rows; n++) {
      sum += Math.pow(n + 1, -ZIPF_EXPONENT);
      sums[n] = sum;
    }
    double total = sum;
    return random -> {
      int found = Arrays.binarySearch(sums, random.nextDouble() * total);
      return Math.min(rows - 1, found < 0 ? -found - 1 : found);
    };
  }

  private static Outcome loop(Operation operation, int callers, double seconds, long seed) throws InterruptedException {
    Outcome outcome = new Outcome();
    long start = System.nanoTime();
    long length = (long) (seconds * 1e9);
    List<Thread> threads = new ArrayList<>();
    for (int caller = 0; caller < callers; caller++) {
      SplittableRandom random = new SplittableRandom(seed + caller);
      threads.add(new Thread(() -> call(operation, random, start, length, outcome)));
    }
    threads.forEach(Thread::start);
    for (Thread thread : threads) {
      thread.join();
    }
    outcome.seconds = (System.nanoTime() - start) / 1e9;
    return outcome;
  }

  private static void call(Operation operation, SplittableRandom random, long start, long length, Outcome outcome) {
    long[] nanos = new long[1024];
    int count = 0;
    long rows = 0;
    long errors = 0;
    Exception first = null;
    for (long began = System.nanoTime(); began - start < length; began = System.nanoTime()) {
      try {
        rows += operation.run(random);
        if (count == nanos.length) {
          nanos = Arrays.copyOf(nanos, 2 * count);
        }
        nanos[count++] = System.nanoTime() - began;
      } catch (Exception error) {
        errors++;
        first = first == null ? error : first;
        pause();
      }
    }
    outcome.add(Arrays.copyOf(nanos, count), rows, errors, first);
  }

  /** A dead server fails at once; do not spin. */
  private static void pause() {
    try {
      Thread.sleep(10);
    } catch (InterruptedException error) {
      Thread.currentThread().interrupt();
    }
  }
}
