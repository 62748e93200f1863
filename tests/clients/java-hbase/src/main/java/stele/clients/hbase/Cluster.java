package stele.clients.hbase;

import static stele.clients.hbase.Cells.b;
import static stele.clients.hbase.Cells.put;

import java.util.EnumSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import org.apache.hadoop.hbase.ClusterMetrics;
import org.apache.hadoop.hbase.ServerName;
import org.apache.hadoop.hbase.client.Admin;
import org.apache.hadoop.hbase.client.CoprocessorDescriptorBuilder;
import org.apache.hadoop.hbase.client.ServerType;
import org.apache.hadoop.hbase.client.Table;
import org.apache.hadoop.hbase.client.TableDescriptorBuilder;
import org.apache.hadoop.hbase.protobuf.generated.AuthenticationProtos.AuthenticationService;
import org.apache.hadoop.hbase.protobuf.generated.AuthenticationProtos.WhoAmIRequest;
import org.apache.hadoop.hbase.protobuf.generated.MultiRowMutationProtos.MultiRowMutationService;
import org.apache.hadoop.hbase.protobuf.generated.MultiRowMutationProtos.MutateRowsRequest;

/** The server as a whole, and its switches. */
final class Cluster extends Area {
  private interface Switch {
    boolean set(boolean on) throws Exception;
  }

  private interface Reading {
    boolean get() throws Exception;
  }

  Cluster() {
    super("cluster", true);
    add("metrics", this::metrics);
    add("servers", this::servers);
    add("switches", this::switches);
    add("maintenance", this::maintenance);
    add("lists", this::lists);
    add("coprocessors", this::coprocessors);
  }

  private void metrics(Case c) throws Exception {
    c.create(Case.described(c.name, 1, "f"), "m");
    try (Admin admin = c.admin()) {
      ClusterMetrics metrics = admin.getClusterMetrics();
      c.say("servers", metrics.getLiveServerMetrics().size());
      c.say("dead", metrics.getDeadServerNames());
      c.say("has-master", metrics.getMasterName() != null);
      c.say("backups", metrics.getBackupMasterNames());
      c.say("has-id", metrics.getClusterId() != null && !metrics.getClusterId().isEmpty());
      c.say("has-version", metrics.getHBaseVersion() != null);
      c.say("in-transition", metrics.getRegionStatesInTransition().size());
      c.say("master-coprocessors", metrics.getMasterCoprocessorNames());
      c.say("counts-regions", metrics.getRegionCount() >= 2);
      c.say("regions-of-table", metrics.getTableRegionStatesCount().get(c.name).getOpenRegions());
      ClusterMetrics servers = admin.getClusterMetrics(EnumSet.of(ClusterMetrics.Option.LIVE_SERVERS));
      c.say("asked-for-servers", servers.getLiveServerMetrics().size());
      ClusterMetrics master = admin.getClusterMetrics(EnumSet.of(ClusterMetrics.Option.MASTER));
      c.say("asked-for-master", (master.getMasterName() != null) + " " + master.getLiveServerMetrics().size());
      metrics.getLiveServerMetrics().values().forEach(server -> {
        c.say("server-has-regions", server.getRegionMetrics().size() >= 2);
        c.say("server-has-heap", server.getMaxHeapSize().getLongValue() > 0);
      });
    }
  }

  private void servers(Case c) throws Exception {
    try (Admin admin = c.admin()) {
      c.say("region-servers", admin.getRegionServers().size());
      c.say("region-servers-active", admin.getRegionServers(true).size());
      c.say("has-master", admin.getMaster() != null);
      c.say("backups", admin.getBackupMasters());
      c.say("dead", admin.listDeadServers());
      c.say("decommissioned", admin.listDecommissionedRegionServers());
      c.say("maintenance", admin.isMasterInMaintenanceMode());
      c.say("master-info-port", admin.getMasterInfoPort() >= -1);
      c.say("cluster-id", c.connection.getClusterId() != null);
    }
  }

  private static void toggled(Case c, String name, Switch set, Reading get) throws Exception {
    boolean before = get.get();
    c.say(name, before);
    c.say(name + "-off", set.set(false) + " then " + get.get());
    c.say(name + "-off-again", set.set(false) + " then " + get.get());
    c.say(name + "-on", set.set(true) + " then " + get.get());
    set.set(before);
  }

  private void switches(Case c) throws Exception {
    try (Admin admin = c.admin()) {
      toggled(c, "balancer", on -> admin.balancerSwitch(on, true), admin::isBalancerEnabled);
      toggled(c, "split", on -> admin.splitSwitch(on, true), admin::isSplitEnabled);
      toggled(c, "merge", on -> admin.mergeSwitch(on, true), admin::isMergeEnabled);
      toggled(c, "normalizer", admin::normalizerSwitch, admin::isNormalizerEnabled);
      toggled(c, "janitor", admin::catalogJanitorSwitch, admin::isCatalogJanitorEnabled);
      toggled(c, "cleaner", admin::cleanerChoreSwitch, admin::isCleanerChoreEnabled);
      toggled(c, "snapshot-cleanup", on -> admin.snapshotCleanupSwitch(on, true), admin::isSnapshotCleanupEnabled);
    }
  }

  private void maintenance(Case c) throws Exception {
    c.create("f").put(put("r", 1, "f:q=v"));
    try (Admin admin = c.admin()) {
      c.failsAs("balance", admin::balance);
      c.failsAs("normalize", admin::normalize);
      c.failsAs("janitor", admin::runCatalogJanitor);
      c.failsAs("cleaner", admin::runCleanerChore);
      ServerName server = admin.getRegionServers().iterator().next();
      c.failsAs("flush-server", () -> admin.flushRegionServer(server));
      c.failsAs("roll-log", () -> admin.rollWALWriter(server));
      c.failsAs("clear-block-cache", () -> admin.clearBlockCache(c.name));
      c.failsAs("clear-compaction-queues", () -> admin.clearCompactionQueues(server, java.util.Set.of("long")));
      c.failsAs("update-configuration", () -> admin.updateConfiguration(server));
      c.say("last-major-compaction", admin.getLastMajorCompactionTimestamp(c.name));
    }
  }

  private void lists(Case c) throws Exception {
    try (Admin admin = c.admin()) {
      c.failsAs("procedures", admin::getProcedures);
      c.failsAs("locks", admin::getLocks);
      c.failsAs("replication-peers", () -> c.say("peers", admin.listReplicationPeers()));
      c.failsAs("replicated", () -> c.say("replicated-tables", admin.listReplicatedTableCFs()));
      c.failsAs("quotas", () -> c.say("quota-list", admin.getQuota(new org.apache.hadoop.hbase.quotas.QuotaFilter())));
      c.failsAs("security", () -> c.say("capabilities", admin.getSecurityCapabilities()));
      c.failsAs("slow-log", () -> c.say("slow-calls", admin.getLogEntries(Set.copyOf(admin.getRegionServers()),
          "SLOW_LOG", ServerType.REGION_SERVER, 10, Map.of())));
      c.failsAs("balancer-log", () -> c.say("balancer-decisions",
          admin.getLogEntries(Set.of(), "BALANCER_DECISION", ServerType.MASTER, 10, Map.of())));
    }
  }

  private void coprocessors(Case c) throws Exception {
    Table table = c.create("f");
    MutateRowsRequest nothing = MutateRowsRequest.getDefaultInstance();
    c.failsAs("absent-service", () -> AuthenticationService.newBlockingStub(table.coprocessorService(b("r")))
        .whoAmI(null, WhoAmIRequest.getDefaultInstance()));
    c.failsAs("absent-master-service",
        () -> MultiRowMutationService.newBlockingStub(c.admin().coprocessorService()).mutateRows(null, nothing));
    c.failsAs("absent-class", () -> {
      try (Admin admin = c.admin()) {
        admin.createTable(TableDescriptorBuilder.newBuilder(Case.described(c.other("x"), 1, "f"))
            .setCoprocessor(CoprocessorDescriptorBuilder.newBuilder("none.Such").build()).build());
      }
    });
    c.say("list", List.of(table.getDescriptor().getCoprocessorDescriptors()));
  }
}
