package stele.clients.hbase;

import static stele.clients.hbase.Cells.b;

import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.util.ArrayList;
import java.util.List;
import java.util.Random;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicLong;
import java.util.concurrent.atomic.AtomicLongArray;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.hbase.HRegionLocation;
import org.apache.hadoop.hbase.ServerName;
import org.apache.hadoop.hbase.TableName;
import org.apache.hadoop.hbase.client.Admin;
import org.apache.hadoop.hbase.client.ColumnFamilyDescriptorBuilder;
import org.apache.hadoop.hbase.client.Connection;
import org.apache.hadoop.hbase.client.ConnectionFactory;
import org.apache.hadoop.hbase.client.Get;
import org.apache.hadoop.hbase.client.Increment;
import org.apache.hadoop.hbase.client.Put;
import org.apache.hadoop.hbase.client.RegionLocator;
import org.apache.hadoop.hbase.client.Result;
import org.apache.hadoop.hbase.client.ResultScanner;
import org.apache.hadoop.hbase.client.Scan;
import org.apache.hadoop.hbase.client.Table;
import org.apache.hadoop.hbase.client.TableDescriptorBuilder;
import org.apache.hadoop.hbase.util.Bytes;

/**
 * Clients of a cluster while regions move, are split, and a server is killed: {@code Moves BOOTSTRAP SERVERS MOVES}. Prints {@code moved}
 * after the moves, goes on until it reads a line, and compares all rows with the answers. No call may fail.
 */
public final class Moves {
  private static final byte[] FAMILY = b("f");
  private static final byte[] COUNTER = b("n");
  private static final byte[] LAST = b("last");
  private static final int ROWS = 200;
  private static final int REGIONS = 8;
  private static final int CALLERS = 6;

  private final Connection connection;
  private final TableName name = TableName.valueOf("moves");
  private final AtomicBoolean ends = new AtomicBoolean();
  private final AtomicLong calls = new AtomicLong();
  private final AtomicLong longestNanos = new AtomicLong();
  /** Increments that were answered, and the last value that was put, of each row. A row belongs to one caller. */
  private final AtomicLongArray increments = new AtomicLongArray(ROWS);
  private final AtomicLongArray puts = new AtomicLongArray(ROWS);
  private final ConcurrentLinkedQueue<String> faults = new ConcurrentLinkedQueue<>();

  private Moves(Connection connection) {
    this.connection = connection;
  }

  public static void main(String[] arguments) throws Exception {
    if (arguments.length != 3) {
      System.err.println("usage: Moves BOOTSTRAP SERVERS MOVES");
      System.exit(2);
    }
    int servers = Integer.parseInt(arguments[1]);
    int moves = Integer.parseInt(arguments[2]);
    Configuration configuration = Transcript.configuration(arguments[0]);
    // As by default.
    configuration.setInt("hbase.client.retries.number", 15);
    configuration.setInt("hbase.client.pause", 100);
    try (Connection connection = ConnectionFactory.createConnection(configuration)) {
      System.exit(new Moves(connection).run(servers, moves) ? 0 : 1);
    }
  }

  private boolean run(int servers, int moves) throws Exception {
    try (Admin admin = connection.getAdmin()) {
      List<ServerName> live = new ArrayList<>(admin.getRegionServers());
      if (live.size() != servers) {
        faults.add("these servers live, and not " + servers + ": " + live);
      }
      Case.drop(admin, name);
      byte[][] splits = new byte[REGIONS - 1][];
      for (int i = 0; i < splits.length; i++) {
        splits[i] = row((i + 1) * ROWS / REGIONS);
      }
      admin.createTable(
          TableDescriptorBuilder.newBuilder(name).setColumnFamily(ColumnFamilyDescriptorBuilder.of(FAMILY)).build(), splits);
      List<Thread> callers = new ArrayList<>();
      for (int i = 0; i < CALLERS; i++) {
        int caller = i;
        Thread thread = new Thread(() -> call(caller), "caller " + i);
        thread.start();
        callers.add(thread);
      }
      try {
        move(admin, live, moves);
        System.out.println("moved");
        System.out.flush();
        new BufferedReader(new InputStreamReader(System.in)).readLine();
      } finally {
        ends.set(true);
        for (Thread caller : callers) {
          caller.join();
        }
      }
      compare();
      Case.drop(admin, name);
    }
    faults.stream().limit(20).forEach(fault -> System.out.println("FAULT " + fault));
    System.out.printf("%d calls, %d moves, %d faults, longest call %d ms%n", calls.get(), moves, faults.size(),
        longestNanos.get() / 1_000_000);
    return faults.isEmpty() && calls.get() > ROWS;
  }

  /** Moves regions to servers in turn, and splits one now and then. A client that asks anew must find each at its new place. */
  private void move(Admin admin, List<ServerName> servers, int moves) throws IOException {
    Random random = new Random(7);
    try (RegionLocator locator = connection.getRegionLocator(name)) {
      for (int i = 0; i < moves; i++) {
        List<HRegionLocation> all = locator.getAllRegionLocations();
        HRegionLocation from = all.get(random.nextInt(all.size()));
        if (i % 10 == 9) {
          admin.split(name, row(random.nextInt(ROWS)));
          continue;
        }
        List<ServerName> others = servers.stream().filter(server -> !server.equals(from.getServerName())).toList();
        ServerName to = others.get(random.nextInt(others.size()));
        byte[] region = from.getRegion().getEncodedNameAsBytes();
        boolean has = false;
        try {
          admin.move(region, to);
          has = Case.until(() -> {
            ServerName now = locator.getRegionLocation(from.getRegion().getStartKey(), true).getServerName();
            return to.equals(now);
          });
        } catch (Exception error) {
          // It was split meanwhile.
          has = Show.chain(error).contains("UnknownRegion");
        }
        if (!has) {
          faults.add(from.getRegion() + " has not moved to " + to);
        }
      }
    } catch (Exception error) {
      faults.add("moves: " + Show.chain(error));
    }
  }

  /** Writes, reads and scans its rows until the end. */
  private void call(int caller) {
    try (Table table = connection.getTable(name)) {
      Random random = new Random(caller);
      for (long i = 1; !ends.get(); i++) {
        int number = random.nextInt(ROWS / CALLERS) * CALLERS + caller;
        long begun = System.nanoTime();
        step(table, number, (int) (i % 5), i);
        longestNanos.accumulateAndGet(System.nanoTime() - begun, Math::max);
        calls.incrementAndGet();
      }
    } catch (Exception error) {
      faults.add("caller " + caller + ": " + Show.chain(error));
    }
  }

  private void step(Table table, int number, int kind, long value) throws IOException {
    byte[] row = row(number);
    switch (kind) {
      case 0, 1 -> {
        table.increment(new Increment(row).addColumn(FAMILY, COUNTER, 1));
        increments.incrementAndGet(number);
      }
      case 2 -> {
        table.put(new Put(row).addColumn(FAMILY, LAST, Bytes.toBytes(value)));
        puts.set(number, value);
      }
      case 3 -> check(table.get(new Get(row)), number);
      default -> {
        int count = 0;
        try (ResultScanner scanner = table.getScanner(new Scan().withStartRow(row).setLimit(20))) {
          for (Result result : scanner) {
            if (Bytes.compareTo(result.getRow(), row) < 0) {
              faults.add("a scan from row " + number + " returned " + Bytes.toString(result.getRow()));
            }
            count++;
          }
        }
        if (count > 20) {
          faults.add("a scan of 20 rows returned " + count);
        }
      }
    }
  }

  /** Compares a row of the calling thread with its answers. */
  private void check(Result result, int number) {
    byte[] counter = result.getValue(FAMILY, COUNTER);
    long counted = counter == null ? 0 : Bytes.toLong(counter);
    if (counted != increments.get(number)) {
      faults.add("row " + number + " counts " + counted + ", and " + increments.get(number) + " increments were answered");
    }
    byte[] last = result.getValue(FAMILY, LAST);
    if ((last == null ? 0 : Bytes.toLong(last)) != puts.get(number)) {
      faults.add("row " + number + " has another value than the last one: " + puts.get(number));
    }
  }

  private void compare() throws IOException {
    int read = 0;
    try (Table table = connection.getTable(name); ResultScanner scanner = table.getScanner(new Scan())) {
      for (Result result : scanner) {
        check(result, Integer.parseInt(Bytes.toString(result.getRow())));
        read++;
      }
    }
    for (int i = 0; i < ROWS; i++) {
      if (increments.get(i) > 0 || puts.get(i) > 0) {
        read--;
      }
    }
    if (read != 0) {
      faults.add(read + " rows too many were scanned");
    }
  }

  private static byte[] row(int number) {
    return b(String.format("%05d", number));
  }
}
