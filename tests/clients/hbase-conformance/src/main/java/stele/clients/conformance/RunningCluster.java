package stele.clients.conformance;

import java.io.IOException;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.hbase.HBaseTestingUtility;
import org.apache.hadoop.hbase.MiniHBaseCluster;
import org.apache.hadoop.hbase.ServerName;
import org.apache.hadoop.hbase.TableName;
import org.apache.hadoop.hbase.client.Admin;
import org.apache.hadoop.hbase.client.CompactionState;
import org.apache.hadoop.hbase.client.RegionInfo;
import org.apache.hadoop.hbase.client.TableState;
import org.apache.hadoop.hbase.master.HMaster;
import org.apache.hadoop.hbase.master.MasterFileSystem;
import org.apache.hadoop.hbase.master.TableStateManager;
import org.apache.hadoop.hbase.regionserver.HRegion;
import org.apache.hadoop.hbase.regionserver.HRegionServer;
import org.apache.hadoop.hbase.util.Bytes;
import org.apache.hadoop.hbase.util.JVMClusterUtil;
import org.mockito.Answers;
import org.mockito.Mockito;
import org.mockito.invocation.InvocationOnMock;

/**
 * The running server in the shape of a mini-cluster. Questions that a client can answer are answered by the client; all
 * others end the test with {@link NeedsMiniCluster}.
 */
final class RunningCluster {
  private static final long COMPACTION_WAIT_MS = 60_000;

  /** The answer to a call. */
  private interface Reply {
    Object to(Object[] arguments) throws Exception;
  }

  private final HBaseTestingUtility utility;

  private RunningCluster(HBaseTestingUtility utility) {
    this.utility = utility;
  }

  static MiniHBaseCluster of(HBaseTestingUtility utility) throws IOException {
    Target.configure(utility.getConfiguration());
    Target.empty();
    return attach(utility);
  }

  /** Without the loss of tables. */
  static MiniHBaseCluster attach(HBaseTestingUtility utility) {
    MiniHBaseCluster cluster = new RunningCluster(utility).cluster();
    utility.setHBaseCluster(cluster);
    return cluster;
  }

  private Admin admin() throws IOException {
    return utility.getAdmin();
  }

  private MiniHBaseCluster cluster() {
    return standIn(MiniHBaseCluster.class, Map.ofEntries(
        Map.entry("isDistributedCluster", arguments -> true),
        Map.entry("isKilledRS", arguments -> false),
        Map.entry("getConf", arguments -> utility.getConfiguration()),
        Map.entry("getConfiguration", arguments -> utility.getConfiguration()),
        Map.entry("getClusterMetrics", arguments -> admin().getClusterMetrics()),
        Map.entry("getInitialClusterMetrics", arguments -> admin().getClusterMetrics()),
        Map.entry("waitForActiveAndReadyMaster", arguments -> true),
        Map.entry("shutdown", arguments -> null),
        Map.entry("close", arguments -> null),
        Map.entry("join", arguments -> null),
        Map.entry("waitUntilShutDown", arguments -> null),
        Map.entry("flushcache", arguments -> flush(tables(arguments))),
        Map.entry("compact", arguments -> compact(tables(arguments))),
        Map.entry("getMaster", arguments -> master()),
        Map.entry("getNumLiveRegionServers", arguments -> admin().getRegionServers().size()),
        Map.entry("getServerHoldingMeta", arguments -> server()),
        Map.entry("getServerHoldingRegion", arguments -> server()),
        Map.entry("getServerWith", arguments -> 0),
        Map.entry("getServerWithMeta", arguments -> 0),
        Map.entry("getRegionServer", arguments -> regionServer()),
        Map.entry("getRegionServerThreads", arguments -> List.of(thread())),
        Map.entry("getLiveRegionServerThreads", arguments -> List.of(thread())),
        Map.entry("getRegions", this::regions),
        Map.entry("findRegionsForTable", this::regions)));
  }

  private HMaster master() {
    return standIn(HMaster.class, Map.of(
        "getServerName", arguments -> admin().getMaster(),
        "getClusterMetrics", arguments -> admin().getClusterMetrics(),
        "isInitialized", arguments -> true,
        "getMasterFileSystem", arguments -> standIn(MasterFileSystem.class, Map.of(
            "getFileSystem", none -> files(),
            "getRootDir", none -> new Path("/"))),
        "getTableStateManager", arguments -> states()));
  }

  /** A file system that nothing can be done with. */
  static FileSystem files() {
    return standIn(FileSystem.class, Map.of());
  }

  private TableStateManager states() {
    return standIn(TableStateManager.class, Map.of("isTableState", arguments -> {
      boolean enabled = admin().isTableEnabled((TableName) arguments[0]);
      TableState.State state = enabled ? TableState.State.ENABLED : TableState.State.DISABLED;
      for (int i = 1; i < arguments.length; i++) {
        if (arguments[i] == state) {
          return true;
        }
      }
      return false;
    }));
  }

  private ServerName server() throws IOException {
    return admin().getRegionServers().iterator().next();
  }

  private JVMClusterUtil.RegionServerThread thread() {
    return standIn(JVMClusterUtil.RegionServerThread.class, Map.of("getRegionServer", arguments -> regionServer()));
  }

  private HRegionServer regionServer() {
    return standIn(HRegionServer.class, Map.of(
        "getServerName", arguments -> server(),
        "getRegions", this::regions,
        "getRegion", arguments -> named(arguments[0]),
        "getOnlineRegion", arguments -> named(arguments[0])));
  }

  /** The region with this whole or encoded name. */
  private HRegion named(Object wanted) throws IOException {
    byte[] name = wanted instanceof byte[] ? (byte[]) wanted : Bytes.toBytes((String) wanted);
    for (TableName table : admin().listTableNames()) {
      for (RegionInfo region : admin().getRegions(table)) {
        if (Bytes.equals(region.getRegionName(), name) || Bytes.equals(region.getEncodedNameAsBytes(), name)) {
          return region(region);
        }
      }
    }
    return null;
  }

  private List<HRegion> regions(Object[] arguments) throws IOException {
    List<HRegion> regions = new ArrayList<>();
    for (TableName table : tables(arguments)) {
      for (RegionInfo region : admin().getRegions(table)) {
        regions.add(region(region));
      }
    }
    return regions;
  }

  private HRegion region(RegionInfo region) {
    return standIn(HRegion.class, Map.of(
        "getRegionInfo", arguments -> region,
        "getTableDescriptor", arguments -> admin().getDescriptor(region.getTable()),
        "flush", arguments -> flush(List.of(region.getTable())),
        "waitForFlushesAndCompactions", arguments -> null,
        "compact", arguments -> compact(List.of(region.getTable()))));
  }

  /** The table that the first argument names, or all. */
  private List<TableName> tables(Object[] arguments) throws IOException {
    Object first = arguments.length == 0 ? null : arguments[0];
    if (first instanceof TableName) {
      return List.of((TableName) first);
    }
    return first instanceof byte[] ? List.of(TableName.valueOf((byte[]) first)) : List.of(admin().listTableNames());
  }

  private Object flush(List<TableName> tables) throws IOException {
    for (TableName table : tables) {
      admin().flush(table);
    }
    return null;
  }

  /** Major ones, since a client cannot wait for others; it waits for their end. */
  private Object compact(List<TableName> tables) throws IOException, InterruptedException {
    for (TableName table : tables) {
      admin().majorCompact(table);
      long end = System.nanoTime() + COMPACTION_WAIT_MS * 1_000_000;
      while (admin().getCompactionState(table) != CompactionState.NONE) {
        if (System.nanoTime() > end) {
          throw new IOException("the compaction of " + table + " does not end");
        }
        Thread.sleep(50);
      }
    }
    return null;
  }

  private static <T> T standIn(Class<T> type, Map<String, Reply> replies) {
    return Mockito.mock(type, Mockito.withSettings().stubOnly().defaultAnswer(call -> reply(type, replies, call)));
  }

  private static Object reply(Class<?> type, Map<String, Reply> replies, InvocationOnMock call) throws Throwable {
    Reply reply = replies.get(call.getMethod().getName());
    if (reply != null) {
      return reply.to(call.getArguments());
    }
    if (call.getMethod().getDeclaringClass() == Object.class) {
      return Answers.RETURNS_DEFAULTS.answer(call);
    }
    throw new NeedsMiniCluster(type.getSimpleName() + "." + call.getMethod().getName());
  }
}
