package stele.clients.hbase;

import static stele.clients.hbase.Cells.b;
import static stele.clients.hbase.Cells.put;

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.Random;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.hadoop.hbase.TableName;
import org.apache.hadoop.hbase.client.Admin;
import org.apache.hadoop.hbase.client.Append;
import org.apache.hadoop.hbase.client.BufferedMutator;
import org.apache.hadoop.hbase.client.ColumnFamilyDescriptorBuilder;
import org.apache.hadoop.hbase.client.Connection;
import org.apache.hadoop.hbase.client.ConnectionFactory;
import org.apache.hadoop.hbase.client.Delete;
import org.apache.hadoop.hbase.client.Get;
import org.apache.hadoop.hbase.client.Increment;
import org.apache.hadoop.hbase.client.Put;
import org.apache.hadoop.hbase.client.Table;
import org.apache.hadoop.hbase.client.TableDescriptor;
import org.apache.hadoop.hbase.client.TableDescriptorBuilder;
import org.apache.hadoop.hbase.io.compress.Compression;
import org.apache.hadoop.hbase.replication.ReplicationPeerConfig;

/**
 * The users of a table that is migrated: {@code Migrate SOURCE QUORUM ROWS}. Fills the table, and then obeys the lines
 * of its input: {@code peer} adds the target as a peer and begins to write, {@code split} splits a region, {@code stop}
 * ends the writing, {@code end} removes peer and table. Each is answered by a line.
 */
public final class Migrate {
  private static final String PEER = "migration";
  /** A row whose only cell has expired before the last comparison. */
  private static final String SHORT_LIVED = "expires";
  private static final TableName NAME = TableName.valueOf("migrated");
  /** Writes in a second: as many as an idle machine replicates beside the copy. */
  private static final int WRITES_PER_SECOND = 200;

  private final Connection source;
  private final int rows;
  private final AtomicBoolean stopped = new AtomicBoolean();
  private final AtomicLong writes = new AtomicLong();

  private Migrate(Connection source, int rows) {
    this.source = source;
    this.rows = rows;
  }

  public static void main(String[] arguments) throws Exception {
    if (arguments.length != 3) {
      System.err.println("usage: Migrate SOURCE QUORUM ROWS");
      System.exit(2);
    }
    try (Connection source = ConnectionFactory.createConnection(Transcript.configuration(arguments[0]));
        Admin admin = source.getAdmin();
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in))) {
      Migrate users = new Migrate(source, Integer.parseInt(arguments[2]));
      removePeer(admin);
      users.fill(admin);
      System.out.println("filled " + users.rows + " rows");
      Thread writer = new Thread(users::write);
      for (String line = input.readLine(); line != null && !line.equals("end"); line = input.readLine()) {
        switch (line) {
          case "peer" -> {
            Replicate.rollLogs(admin);
            admin.addReplicationPeer(PEER,
                ReplicationPeerConfig.newBuilder().setClusterKey(arguments[1] + ":/hbase").build());
            writer.start();
          }
          case "split" -> admin.split(NAME, b(users.row(users.rows / 16)));
          case "stop" -> {
            users.stopped.set(true);
            writer.join();
            // Without its TTL it would stay in the target.
            try (Table table = source.getTable(NAME)) {
              Case.until(() -> !table.exists(new Get(b(SHORT_LIVED))));
            }
          }
          default -> throw new IllegalArgumentException(line);
        }
        System.out.println(line + ": " + users.writes + " writes, " + admin.getRegions(NAME).size() + " regions");
      }
      removePeer(admin);
      Case.drop(admin, NAME);
    }
    System.exit(0);
  }

  private static void removePeer(Admin admin) throws Exception {
    if (admin.listReplicationPeers().stream().anyMatch(peer -> peer.getPeerId().equals(PEER))) {
      admin.removeReplicationPeer(PEER);
    }
  }

  private String row(int i) {
    return String.format("r%08d", i);
  }

  private void fill(Admin admin) throws Exception {
    Case.drop(admin, NAME);
    TableDescriptor descriptor = TableDescriptorBuilder.newBuilder(NAME)
        .setColumnFamily(ColumnFamilyDescriptorBuilder.newBuilder(b("f")).setMaxVersions(3).setScope(1).build())
        .setColumnFamily(ColumnFamilyDescriptorBuilder.newBuilder(b("g")).setScope(1)
            .setTimeToLive(30 * 24 * 3600).setCompressionType(Compression.Algorithm.GZ).build())
        .setValue("owner", "the users").build();
    byte[][] splits = new byte[7][];
    for (int i = 0; i < splits.length; i++) {
      splits[i] = b(row((i + 1) * (rows / 8)));
    }
    admin.createTable(descriptor, splits);
    Random random = new Random(1);
    byte[] value = new byte[100];
    try (BufferedMutator mutator = source.getBufferedMutator(NAME)) {
      for (int i = 0; i < rows; i++) {
        random.nextBytes(value);
        Put put = new Put(b(row(i))).addColumn(b("f"), b("a"), 1000 + i, value).addColumn(b("g"), b("n"), b("" + i));
        mutator.mutate(put);
        if (i % 10 == 0) {
          mutator.mutate(new Put(b(row(i))).addColumn(b("f"), b("a"), 2000 + i, b("second version")));
        }
      }
      mutator.flush();
      // One half of the markers are in other files than the cells that they hide.
      admin.flush(NAME);
      for (int i = 0; i < rows; i += 17) {
        Delete delete = new Delete(b(row(i)));
        switch (i % 4) {
          case 0 -> delete.addFamily(b("g"));
          case 1 -> delete.addColumn(b("f"), b("a"), 1000 + i);
          case 2 -> delete.addColumns(b("f"), b("a"), 5000 + i);
          default -> delete.addFamilyVersion(b("f"), 1000 + i);
        }
        mutator.mutate(delete);
      }
      mutator.mutate(put(SHORT_LIVED, "f:q=x").setTTL(30_000));
    }
  }

  /** Puts, deletes, increments and appends of random rows, some of them new, until stopped. */
  private void write() {
    Random random = new Random(2);
    try (Table table = source.getTable(NAME)) {
      while (!stopped.get()) {
        String row = row(random.nextInt(rows + rows / 10));
        switch (random.nextInt(10)) {
          case 0 -> table.delete(new Delete(b(row)));
          case 1 -> table.delete(new Delete(b(row)).addColumns(b("f"), b("a")));
          case 2 -> table.increment(new Increment(b(row)).addColumn(b("f"), b("count"), 1));
          case 3 -> table.append(new Append(b("log" + random.nextInt(10))).addColumn(b("f"), b("text"), b("x")));
          case 4 -> table.put(put(row, "f:short lived=x").setTTL(60_000L + random.nextInt(24 * 3600 * 1000)));
          default -> table.put(put(row, "f:a=" + writes, "g:n=live"));
        }
        writes.incrementAndGet();
        Thread.sleep(1000 / WRITES_PER_SECOND);
      }
    } catch (Exception e) {
      e.printStackTrace();
      System.exit(1);
    }
  }
}
