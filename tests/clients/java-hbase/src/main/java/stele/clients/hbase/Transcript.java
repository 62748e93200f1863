package stele.clients.hbase;

import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import java.util.regex.Pattern;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.hbase.HBaseConfiguration;
import org.apache.hadoop.hbase.TableName;
import org.apache.hadoop.hbase.client.Admin;
import org.apache.hadoop.hbase.client.Connection;
import org.apache.hadoop.hbase.client.ConnectionFactory;

/**
 * Runs labelled cases against a server of HBase's protocol: {@code Transcript HOST:PORT [--only REGEX]}.
 *
 * <p>Prints one line for each observation, {@code area.case.step: result}, in an order that does not depend on time.
 * The same server in the same state gives the same lines, so a transcript of one server is the expectation of another.
 * Ends with 0 when all cases ran, also when they observed failures.
 */
public final class Transcript {
  /** The cases of an area that run at a time: most of their time is spent waiting for tables. */
  private static final int THREADS = 4;
  /** The largest case needs a tenth of it on a busy machine. */
  private static final long CASE_LIMIT_SECONDS = 180;

  private Transcript() {}

  public static void main(String[] arguments) throws Exception {
    boolean filtered = arguments.length == 3 && arguments[1].equals("--only");
    if (arguments.length != 1 && !filtered) {
      System.err.println("usage: Transcript HOST:PORT [--only REGEX]");
      System.exit(2);
    }
    Pattern only = Pattern.compile(filtered ? arguments[2] : "");
    List<Area> areas = List.of(
        new Gets(), new Puts(), new Deletes(), new Counters(), new Checks(), new Batches(), new Scans(), new Partials(),
        new Filters(), new Comparators(), new Transports(), new Async(), new Concurrency(), new Tables(),
        new Families(), new Namespaces(), new Regions(), new Snapshots(), new Endpoints(), new Cluster());
    Configuration configuration = configuration(arguments[0]);
    try (Connection connection = ConnectionFactory.createConnection(configuration)) {
      expectServer(connection);
      for (Area area : areas) {
        run(area, only, connection, configuration);
      }
    }
    // A case that ran out of time still has its thread.
    System.exit(0);
  }

  /** A client that is told one server, gives up within seconds, and is as it comes otherwise. */
  static Configuration configuration(String address) {
    Configuration configuration = HBaseConfiguration.create();
    configuration.set("hbase.client.registry.impl", "org.apache.hadoop.hbase.client.RpcConnectionRegistry");
    configuration.set("hbase.client.bootstrap.servers", address);
    configuration.setInt("hbase.client.retries.number", 8);
    configuration.setInt("hbase.client.pause", 50);
    configuration.setInt("hbase.rpc.timeout", 30_000);
    configuration.setInt("hbase.client.operation.timeout", 60_000);
    configuration.setInt("hbase.client.meta.operation.timeout", 60_000);
    return configuration;
  }

  /** Without a server that answers, each case would end only after all its attempts. */
  private static void expectServer(Connection connection) throws Exception {
    try (Admin admin = connection.getAdmin()) {
      admin.tableExists(TableName.valueOf("absent"));
    }
  }

  private static void run(Area area, Pattern only, Connection connection,
      Configuration configuration) throws Exception {
    ExecutorService pool = Executors.newFixedThreadPool(area.ordered ? 1 : THREADS, Transcript::daemon);
    List<Case> cases = new ArrayList<>();
    List<Future<?>> ends = new ArrayList<>();
    area.cases().forEach((name, body) -> {
      if (only.matcher(area.name + "." + name).find()) {
        Case one = new Case(area.name, name, connection, configuration);
        cases.add(one);
        ends.add(pool.submit(() -> one.run(body)));
      }
    });
    for (int i = 0; i < cases.size(); i++) {
      try {
        ends.get(i).get(CASE_LIMIT_SECONDS, TimeUnit.SECONDS);
      } catch (TimeoutException late) {
        cases.get(i).say("ended", "no, after " + CASE_LIMIT_SECONDS + " s");
        ends.get(i).cancel(true);
      }
      System.out.print(cases.get(i).text());
      System.out.flush();
    }
    pool.shutdown();
  }

  private static Thread daemon(Runnable work) {
    Thread thread = new Thread(work);
    thread.setDaemon(true);
    return thread;
  }
}
