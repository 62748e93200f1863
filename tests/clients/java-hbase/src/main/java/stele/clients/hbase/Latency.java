package stele.clients.hbase;

import static stele.clients.hbase.Cells.b;

import java.io.IOException;
import java.util.Arrays;
import java.util.Random;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicLong;
import java.util.concurrent.atomic.AtomicReference;
import org.apache.hadoop.hbase.TableName;
import org.apache.hadoop.hbase.client.Admin;
import org.apache.hadoop.hbase.client.BufferedMutator;
import org.apache.hadoop.hbase.client.ColumnFamilyDescriptor;
import org.apache.hadoop.hbase.client.ColumnFamilyDescriptorBuilder;
import org.apache.hadoop.hbase.client.Connection;
import org.apache.hadoop.hbase.client.ConnectionFactory;
import org.apache.hadoop.hbase.client.Get;
import org.apache.hadoop.hbase.client.Put;
import org.apache.hadoop.hbase.client.Result;
import org.apache.hadoop.hbase.client.ResultScanner;
import org.apache.hadoop.hbase.client.Scan;
import org.apache.hadoop.hbase.client.Table;
import org.apache.hadoop.hbase.client.TableDescriptorBuilder;

/**
 * Times gets through one connection, alone and while the same connection scans the whole table:
 * {@code Latency HOST:PORT ROWS RATE SECONDS}. A get is due every 1/RATE seconds, and its latency counts from then.
 */
public final class Latency {
  private static final TableName TABLE = TableName.valueOf("latency");
  private static final byte[] FAMILY = b("f");
  private static final int VALUE_BYTES = 100;
  private static final int WARM_UP_SECONDS = 5;

  private Latency() {}

  public static void main(String[] arguments) throws Exception {
    if (arguments.length != 4) {
      System.err.println("usage: Latency HOST:PORT ROWS RATE SECONDS");
      System.exit(2);
    }
    int rows = Integer.parseInt(arguments[1]);
    int rate = Integer.parseInt(arguments[2]);
    int seconds = Integer.parseInt(arguments[3]);
    try (Connection connection = ConnectionFactory.createConnection(Transcript.configuration(arguments[0]))) {
      fill(connection, rows);
      gets(connection, rows, rate, WARM_UP_SECONDS);
      show("alone", gets(connection, rows, rate, seconds));
      Scanner scanner = new Scanner(connection, rows);
      scanner.start();
      gets(connection, rows, rate, WARM_UP_SECONDS);
      long before = scanner.rows.get();
      show("during a scan", gets(connection, rows, rate, seconds));
      System.out.println("rows scanned meanwhile: " + (scanner.rows.get() - before));
      scanner.end();
    }
    System.exit(0);
  }

  private static void fill(Connection connection, int rows) throws IOException {
    try (Admin admin = connection.getAdmin()) {
      Case.drop(admin, TABLE);
      ColumnFamilyDescriptor family = ColumnFamilyDescriptorBuilder.of(FAMILY);
      admin.createTable(TableDescriptorBuilder.newBuilder(TABLE).setColumnFamily(family).build());
    }
    byte[] value = new byte[VALUE_BYTES];
    Random random = new Random(7);
    try (BufferedMutator mutator = connection.getBufferedMutator(TABLE)) {
      for (int i = 0; i < rows; i++) {
        random.nextBytes(value);
        mutator.mutate(new Put(row(i)).addColumn(FAMILY, b("q"), value));
      }
    }
  }

  private static byte[] row(int number) {
    return b(String.format("%010d", number));
  }

  /** The latencies in nanoseconds, ascending. */
  private static long[] gets(Connection connection, int rows, int rate, int seconds) throws Exception {
    long[] taken = new long[rate * seconds];
    Random random = new Random(11);
    try (Table table = connection.getTable(TABLE)) {
      long begin = System.nanoTime();
      for (int i = 0; i < taken.length; i++) {
        long due = begin + i * 1_000_000_000L / rate;
        while (System.nanoTime() < due) {
          Thread.sleep(0, 100_000);
        }
        Result result = table.get(new Get(row(random.nextInt(rows))));
        if (result.isEmpty()) {
          throw new IOException("a row is missing");
        }
        taken[i] = System.nanoTime() - due;
      }
    }
    Arrays.sort(taken);
    return taken;
  }

  private static void show(String name, long[] taken) {
    StringBuilder line = new StringBuilder(name + ": " + taken.length + " gets, ms");
    double[] parts = {0.5, 0.99, 0.999};
    String[] names = {"p50", "p99", "p99.9"};
    for (int i = 0; i < parts.length; i++) {
      line.append(String.format(" %s %.2f", names[i], taken[(int) (parts[i] * (taken.length - 1))] / 1e6));
    }
    System.out.println(line);
  }

  /** Scans the table time and again. */
  private static final class Scanner extends Thread {
    final AtomicLong rows = new AtomicLong();
    private final AtomicBoolean ends = new AtomicBoolean();
    private final AtomicReference<Throwable> failure = new AtomicReference<>();
    private final Connection connection;
    private final int expected;

    Scanner(Connection connection, int expected) {
      this.connection = connection;
      this.expected = expected;
      setDaemon(true);
    }

    @Override
    public void run() {
      try {
        while (!ends.get()) {
          scan();
        }
      } catch (IOException | RuntimeException error) {
        failure.set(error);
      }
    }

    private void scan() throws IOException {
      long found = 0;
      try (Table table = connection.getTable(TABLE);
          ResultScanner scanner = table.getScanner(new Scan())) {
        for (Result result : scanner) {
          found += result.isEmpty() ? 0 : 1;
          rows.incrementAndGet();
          if (ends.get()) {
            return;
          }
        }
      }
      if (found != expected) {
        throw new IOException("a scan found " + found + " of " + expected + " rows");
      }
    }

    void end() throws Exception {
      ends.set(true);
      join();
      if (failure.get() != null) {
        throw new IOException("the scan failed", failure.get());
      }
    }
  }
}
