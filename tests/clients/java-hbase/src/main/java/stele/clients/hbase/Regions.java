package stele.clients.hbase;

import static stele.clients.hbase.Cells.b;
import static stele.clients.hbase.Cells.get;
import static stele.clients.hbase.Cells.put;
import static stele.clients.hbase.Cells.scan;

import java.util.ArrayList;
import java.util.List;
import org.apache.hadoop.hbase.HRegionLocation;
import org.apache.hadoop.hbase.ServerName;
import org.apache.hadoop.hbase.TableName;
import org.apache.hadoop.hbase.client.Admin;
import org.apache.hadoop.hbase.client.CompactionState;
import org.apache.hadoop.hbase.client.RegionInfo;
import org.apache.hadoop.hbase.client.RegionLocator;
import org.apache.hadoop.hbase.client.ResultScanner;
import org.apache.hadoop.hbase.client.Table;

/** Regions: their places, splits, merges, moves, flushes and compactions. */
final class Regions extends Area {
  Regions() {
    super("regions");
    add("locate", this::locate);
    add("names", this::names);
    add("split", this::split);
    add("split-region", this::splitRegion);
    add("split-during-scan", this::splitDuringScan);
    add("split-errors", this::splitErrors);
    add("merge", this::merge);
    add("merge-errors", this::mergeErrors);
    add("move", this::move);
    add("move-during-scan", this::moveDuringScan);
    add("unassign", this::unassign);
    add("flush", this::flush);
    add("compact", this::compact);
    add("compact-deletes", this::compactDeletes);
    add("metrics", this::metrics);
  }

  /** The keys at which a table's regions begin and end. */
  static String ranges(Admin admin, TableName name) throws Exception {
    List<String> ranges = new ArrayList<>();
    for (RegionInfo region : admin.getRegions(name)) {
      ranges.add("[" + Show.bytes(region.getStartKey()) + ", " + Show.bytes(region.getEndKey()) + ")");
    }
    return String.join(" ", ranges);
  }

  private static Table filled(Case c, String... splits) throws Exception {
    Table table = c.create(Case.described(c.name, 3, "f"), splits);
    for (char row = 'a'; row <= 'j'; row++) {
      table.put(put("" + row, 1, "f:q=" + row));
    }
    return table;
  }

  private static String rows(Table table) throws Exception {
    StringBuilder rows = new StringBuilder();
    try (ResultScanner scanner = table.getScanner(scan().setCaching(2))) {
      scanner.forEach(result -> rows.append(Show.bytes(result.value())));
    }
    return rows.toString();
  }

  private void locate(Case c) throws Exception {
    filled(c, "c", "f,", "h");
    try (RegionLocator locator = c.connection.getRegionLocator(c.name)) {
      for (String row : List.of("", "b", "c", "f", "f,", "f-", "h", "zzz")) {
        RegionInfo region = locator.getRegionLocation(b(row), true).getRegion();
        c.say("of-" + row, Show.bytes(region.getStartKey()) + " to " + Show.bytes(region.getEndKey()));
      }
      c.say("all", locator.getAllRegionLocations().size());
      c.say("start-keys", locator.getStartKeys());
      c.say("end-keys", locator.getEndKeys());
      ServerName server = locator.getRegionLocation(b("a")).getServerName();
      c.say("has-a-server", server.getPort() > 0 && server.getStartCode() > 0);
      c.say("replicas", locator.getRegionLocations(b("a")).size());
    }
    c.failsAs("absent",
        () -> c.connection.getRegionLocator(TableName.valueOf("regions_none")).getRegionLocation(b("a")));
  }

  private void names(Case c) throws Exception {
    filled(c, "e");
    try (Admin admin = c.admin()) {
      for (RegionInfo region : admin.getRegions(c.name)) {
        c.say("name", region.getRegionNameAsString());
        c.say("name-holds-its-parts",
            region.getRegionNameAsString().equals(c.name + "," + Show.bytes(region.getStartKey()) + ","
            + region.getRegionId() + "." + region.getEncodedName() + "."));
        c.say("flags", region.isOffline() + " " + region.isSplit() + " " + region.isMetaRegion() + " "
            + region.getReplicaId());
      }
    }
  }

  private static boolean untilRegions(Admin admin, Case c, int count) throws Exception {
    return Case.until(() -> admin.getRegions(c.name).size() == count && admin.isTableAvailable(c.name));
  }

  private void split(Case c) throws Exception {
    Table table = filled(c);
    try (Admin admin = c.admin()) {
      admin.split(c.name, b("e"));
      c.say("two", untilRegions(admin, c, 2));
      c.say("regions", ranges(admin, c.name));
    }
    c.say("rows", rows(table));
    table.put(List.of(put("aa", 2, "f:q=A"), put("ee", 2, "f:q=E")));
    c.say("rows-after", rows(table));
    try (RegionLocator locator = c.connection.getRegionLocator(c.name)) {
      c.say("place-of-d", locator.getRegionLocation(b("d"), true).getRegion().getEndKey());
      c.say("place-of-e", locator.getRegionLocation(b("e"), true).getRegion().getStartKey());
    }
  }

  private void splitRegion(Case c) throws Exception {
    Table table = filled(c, "e");
    try (Admin admin = c.admin()) {
      admin.flush(c.name);
      RegionInfo second = admin.getRegions(c.name).get(1);
      admin.splitRegionAsync(second.getEncodedNameAsBytes(), b("h")).get();
      c.say("three", untilRegions(admin, c, 3));
      c.say("regions", ranges(admin, c.name));
    }
    c.say("rows", rows(table));
    c.get("row", table, get("h"));
  }

  private void splitDuringScan(Case c) throws Exception {
    Table table = filled(c);
    try (Admin admin = c.admin(); ResultScanner scanner = table.getScanner(scan().setCaching(1))) {
      StringBuilder rows = new StringBuilder();
      rows.append(Show.bytes(scanner.next().value())).append(Show.bytes(scanner.next().value()));
      admin.splitRegionAsync(admin.getRegions(c.name).get(0).getEncodedNameAsBytes(), b("e")).get();
      c.say("two", untilRegions(admin, c, 2));
      scanner.forEach(result -> rows.append(Show.bytes(result.value())));
      c.say("rows", rows);
    }
  }

  private void splitErrors(Case c) throws Exception {
    filled(c, "e");
    try (Admin admin = c.admin()) {
      List<RegionInfo> regions = admin.getRegions(c.name);
      c.failsAs("at-start", () -> admin.splitRegionAsync(regions.get(1).getEncodedNameAsBytes(), b("e")).get());
      c.failsAs("outside", () -> admin.splitRegionAsync(regions.get(1).getEncodedNameAsBytes(), b("a")).get());
      c.failsAs("absent-region", () -> admin.splitRegionAsync(b("0123456789abcdef0123456789abcdef"), b("a")).get());
      c.failsAs("absent-table", () -> admin.split(TableName.valueOf("regions_none"), b("a")));
      c.say("regions", ranges(admin, c.name));
    }
  }

  private void merge(Case c) throws Exception {
    Table table = filled(c, "c", "f");
    try (Admin admin = c.admin()) {
      List<RegionInfo> regions = admin.getRegions(c.name);
      byte[][] two = {regions.get(0).getEncodedNameAsBytes(), regions.get(1).getEncodedNameAsBytes()};
      admin.mergeRegionsAsync(two, false).get();
      c.say("two", untilRegions(admin, c, 2));
      c.say("regions", ranges(admin, c.name));
    }
    c.say("rows", rows(table));
    table.put(List.of(put("b", 2, "f:q=B"), put("d", 2, "f:q=D")));
    c.say("rows-after", rows(table));
  }

  private void mergeErrors(Case c) throws Exception {
    filled(c, "c", "f");
    try (Admin admin = c.admin()) {
      List<RegionInfo> regions = admin.getRegions(c.name);
      byte[] first = regions.get(0).getEncodedNameAsBytes();
      c.failsAs("not-adjacent",
          () -> admin.mergeRegionsAsync(new byte[][] {first, regions.get(2).getEncodedNameAsBytes()}, false).get());
      c.failsAs("itself", () -> admin.mergeRegionsAsync(new byte[][] {first, first}, false).get());
      c.failsAs("one", () -> admin.mergeRegionsAsync(new byte[][] {first}, false).get());
      c.say("regions", ranges(admin, c.name));
    }
  }

  private static ServerName server(Case c) throws Exception {
    try (RegionLocator locator = c.connection.getRegionLocator(c.name)) {
      return locator.getRegionLocation(b("a"), true).getServerName();
    }
  }

  private void move(Case c) throws Exception {
    Table table = filled(c, "e");
    try (Admin admin = c.admin()) {
      byte[] region = admin.getRegions(c.name).get(0).getEncodedNameAsBytes();
      c.failsAs("to-its-server", () -> admin.move(region, server(c)));
      c.failsAs("anywhere", () -> admin.move(region));
      c.failsAs("absent-region", () -> admin.move(b("0123456789abcdef0123456789abcdef")));
    }
    c.say("rows", rows(table));
    table.put(put("a", 2, "f:q=A"));
    c.get("row", table, get("a"));
  }

  private void moveDuringScan(Case c) throws Exception {
    Table table = filled(c, "h");
    try (Admin admin = c.admin(); ResultScanner scanner = table.getScanner(scan().setCaching(1))) {
      StringBuilder rows = new StringBuilder();
      rows.append(Show.bytes(scanner.next().value())).append(Show.bytes(scanner.next().value()));
      admin.move(admin.getRegions(c.name).get(0).getEncodedNameAsBytes(), server(c));
      c.say("available", Case.until(() -> admin.isTableAvailable(c.name)));
      scanner.forEach(result -> rows.append(Show.bytes(result.value())));
      c.say("rows", rows);
    }
  }

  private void unassign(Case c) throws Exception {
    Table table = filled(c, "e");
    try (Admin admin = c.admin()) {
      byte[] region = admin.getRegions(c.name).get(0).getRegionName();
      c.failsAs("unassign", () -> admin.unassign(region));
      c.failsAs("assign", () -> admin.assign(region));
      c.say("available", Case.until(() -> admin.isTableAvailable(c.name)));
    }
    c.say("rows", rows(table));
  }

  private void flush(Case c) throws Exception {
    Table table = c.versions(3, "f", "g");
    table.put(put("r", 1, "f:q=v", "g:q=v"));
    try (Admin admin = c.admin()) {
      admin.flush(c.name);
      c.get("row", table, get("r"));
      table.put(put("r", 2, "f:q=w"));
      c.get("after-put", table, get("r").readAllVersions());
      admin.flush(c.name, b("f"));
      admin.flush(c.name, List.of(b("f"), b("g")));
      admin.flushRegion(admin.getRegions(c.name).get(0).getRegionName());
      admin.flushRegion(admin.getRegions(c.name).get(0).getRegionName(), b("g"));
      c.failsAs("absent-family", () -> admin.flush(c.name, b("none")));
      c.get("end", table, get("r").readAllVersions());
    }
  }

  private void compact(Case c) throws Exception {
    Table table = c.create(Case.described(c.name, 2, "f", "g"), "m");
    try (Admin admin = c.admin()) {
      for (int i = 1; i <= 4; i++) {
        table.put(List.of(put("a", i, "f:q=v" + i, "g:q=w"), put("z", i, "f:q=v" + i)));
        admin.flush(c.name);
      }
      admin.compact(c.name);
      admin.compact(c.name, b("g"));
      admin.majorCompact(c.name);
      admin.majorCompact(c.name, b("f"));
      admin.compactRegion(admin.getRegions(c.name).get(0).getRegionName());
      admin.majorCompactRegion(admin.getRegions(c.name).get(1).getRegionName());
      c.say("ends", Case.until(() -> admin.getCompactionState(c.name) == CompactionState.NONE));
      byte[] first = admin.getRegions(c.name).get(0).getRegionName();
      c.say("region-state", Case.until(() -> admin.getCompactionStateForRegion(first) == CompactionState.NONE));
      c.failsAs("absent-table", () -> admin.compact(TableName.valueOf("regions_none")));
      c.say("switch-off", admin.compactionSwitch(true, List.of()).size());
    }
    c.scan("rows", table, scan().readAllVersions());
  }

  /** A major compaction drops markers, and with them their hold on later puts. */
  private void compactDeletes(Case c) throws Exception {
    Table table = c.versions(3, "f");
    table.put(put("r", 3, "f:q=old", "f:p=stays"));
    table.delete(Cells.delete("r").addColumns(b("f"), b("q"), 5));
    try (Admin admin = c.admin()) {
      admin.flush(c.name);
      admin.majorCompact(c.name);
      c.say("markers-go", Case.until(() -> {
        try (ResultScanner scanner = table.getScanner(scan().setRaw(true).readAllVersions())) {
          return scanner.next().size() == 1;
        }
      }));
    }
    table.put(put("r", 4, "f:q=lower"));
    c.get("row", table, get("r"));
  }

  private void metrics(Case c) throws Exception {
    Table table = filled(c, "e");
    try (Admin admin = c.admin()) {
      ServerName server = server(c);
      c.say("of-table", admin.getRegionMetrics(server, c.name).size());
      c.say("names", admin.getRegionMetrics(server, c.name).stream().map(one -> one.getNameAsString()).toList());
      c.say("of-server", admin.getRegionMetrics(server).size() >= 2);
      c.say("of-server-regions", admin.getRegions(server).size() >= 2);
      admin.flush(c.name);
      c.say("files-after-flush", Case.until(() -> admin.getRegionMetrics(server, c.name).stream()
          .allMatch(one -> one.getStoreFileCount() >= 1)));
    }
    c.say("rows", rows(table));
    try (RegionLocator locator = c.connection.getRegionLocator(c.name)) {
      List<HRegionLocation> all = locator.getAllRegionLocations();
      c.say("locations", all.size());
      c.say("sequence-numbers", all.stream().allMatch(one -> one.getSeqNum() >= 0));
    }
  }
}
