package stele.clients.hbase;

import static stele.clients.hbase.Cells.get;
import static stele.clients.hbase.Cells.put;
import static stele.clients.hbase.Cells.scan;

import java.util.List;
import java.util.regex.Pattern;
import org.apache.hadoop.hbase.TableName;
import org.apache.hadoop.hbase.client.Admin;
import org.apache.hadoop.hbase.client.SnapshotDescription;
import org.apache.hadoop.hbase.client.SnapshotType;
import org.apache.hadoop.hbase.client.Table;

/** Snapshots: taking, listing, cloning, restoring. */
final class Snapshots extends Area {
  Snapshots() {
    super("snapshots", true);
    add("life", this::life);
    add("clone", this::cloned);
    add("restore", this::restored);
    add("restore-families", this::restoredFamilies);
    add("of-disabled", this::ofDisabled);
    add("kinds", this::kinds);
    add("lists", this::lists);
    add("errors", this::errors);
  }

  private static final Pattern OWN = Pattern.compile("snap_.*");

  private static Admin fresh(Case c) throws Exception {
    Admin admin = c.admin();
    admin.deleteSnapshots(OWN);
    return admin;
  }

  private static Table filled(Case c) throws Exception {
    Table table = c.create(Case.described(c.name, 3, "f"), "m");
    table.put(List.of(put("a", 1, "f:q=a"), put("z", 1, "f:q=z")));
    return table;
  }

  private static List<String> names(Admin admin) throws Exception {
    return admin.listSnapshots(OWN).stream().map(SnapshotDescription::getName).sorted().toList();
  }

  private void life(Case c) throws Exception {
    filled(c);
    try (Admin admin = fresh(c)) {
      admin.snapshot("snap_life", c.name);
      c.say("names", names(admin));
      SnapshotDescription snapshot = admin.listSnapshots(OWN).get(0);
      c.say("table", snapshot.getTableName());
      c.say("type", snapshot.getType());
      c.say("time", Show.timestamp(snapshot.getCreationTime()));
      c.say("finished", admin.isSnapshotFinished(snapshot));
      admin.deleteSnapshot("snap_life");
      c.say("deleted", names(admin));
    }
  }

  private void cloned(Case c) throws Exception {
    Table table = filled(c);
    try (Admin admin = fresh(c)) {
      admin.snapshot("snap_clone", c.name);
      table.put(put("a", 2, "f:q=later"));
      TableName name = c.other("copy");
      admin.cloneSnapshot("snap_clone", name);
      Table copy = c.connection.getTable(name);
      c.scan("copy", copy, scan());
      c.say("regions", Regions.ranges(admin, name));
      copy.put(put("a", 3, "f:q=of the copy"));
      c.get("copy-row", copy, get("a"));
      c.get("row", table, get("a"));
      admin.disableTable(c.name);
      admin.deleteTable(c.name);
      c.scan("copy-without-source", copy, scan());
      c.failsAs("clone-to-existing", () -> admin.cloneSnapshot("snap_clone", name));
      admin.deleteSnapshot("snap_clone");
      c.scan("copy-without-snapshot", copy, scan());
    }
  }

  private void restored(Case c) throws Exception {
    Table table = filled(c);
    try (Admin admin = fresh(c)) {
      admin.snapshot("snap_restore", c.name);
      table.put(List.of(put("a", 2, "f:q=later"), put("b", 1, "f:q=later")));
      table.delete(Cells.delete("z"));
      c.failsAs("enabled", () -> admin.restoreSnapshot("snap_restore"));
      admin.disableTable(c.name);
      admin.restoreSnapshot("snap_restore");
      c.say("disabled-still", admin.isTableDisabled(c.name));
      admin.enableTable(c.name);
      c.scan("rows", table, scan());
      table.put(put("c", 1, "f:q=new"));
      c.scan("rows-after", table, scan());
      admin.deleteSnapshot("snap_restore");
    }
  }

  private void restoredFamilies(Case c) throws Exception {
    Table table = filled(c);
    try (Admin admin = fresh(c)) {
      admin.snapshot("snap_families", c.name);
      admin.addColumnFamily(c.name, Case.family("g", 1));
      table.put(put("a", 2, "g:q=later"));
      admin.disableTable(c.name);
      admin.restoreSnapshot("snap_families");
      admin.enableTable(c.name);
      c.say("families", admin.getDescriptor(c.name).getColumnFamilyNames());
      c.scan("rows", table, scan());
      admin.deleteSnapshot("snap_families");
    }
  }

  private void ofDisabled(Case c) throws Exception {
    filled(c);
    try (Admin admin = fresh(c)) {
      admin.disableTable(c.name);
      admin.snapshot("snap_disabled", c.name);
      c.say("names", names(admin));
      TableName name = c.other("copy");
      admin.cloneSnapshot("snap_disabled", name);
      c.say("enabled", admin.isTableEnabled(name));
      c.scan("copy", c.connection.getTable(name), scan());
      admin.deleteSnapshot("snap_disabled");
    }
  }

  private void kinds(Case c) throws Exception {
    Table table = filled(c);
    try (Admin admin = fresh(c)) {
      for (SnapshotType type : List.of(SnapshotType.FLUSH, SnapshotType.SKIPFLUSH)) {
        String name = "snap_" + type.name().toLowerCase();
        c.failsAs(type.name(), () -> admin.snapshot(name, c.name, type));
      }
      c.say("names", names(admin));
      admin.snapshotAsync(new SnapshotDescription("snap_async", c.name)).get();
      c.say("async", names(admin));
      admin.deleteSnapshots(OWN);
    }
    c.scan("rows", table, scan());
  }

  private void lists(Case c) throws Exception {
    filled(c);
    try (Admin admin = fresh(c)) {
      admin.snapshot("snap_one", c.name);
      admin.snapshot("snap_two", c.name);
      c.say("names", names(admin));
      c.say("pattern", admin.listSnapshots(Pattern.compile("snap_o.*")).size());
      c.say("of-table", admin.listTableSnapshots(Pattern.compile(c.name.getNameAsString()), OWN).size());
      c.say("of-no-table", admin.listTableSnapshots(Pattern.compile("none"), OWN).size());
      admin.deleteSnapshots(Pattern.compile("snap_o.*"));
      c.say("after-delete", names(admin));
      admin.deleteTableSnapshots(Pattern.compile(c.name.getNameAsString()), OWN);
      c.say("after-delete-of-table", names(admin));
    }
  }

  private void errors(Case c) throws Exception {
    filled(c);
    try (Admin admin = fresh(c)) {
      admin.snapshot("snap_errors", c.name);
      c.failsAs("again", () -> admin.snapshot("snap_errors", c.name));
      c.failsAs("absent-table", () -> admin.snapshot("snap_none", TableName.valueOf("snapshots_none")));
      c.failsAs("delete-absent", () -> admin.deleteSnapshot("snap_none"));
      c.failsAs("restore-absent", () -> admin.restoreSnapshot("snap_none"));
      c.failsAs("clone-absent", () -> admin.cloneSnapshot("snap_none", c.other("copy")));
      c.failsAs("bad-name", () -> admin.snapshot("snap errors", c.name));
      c.say("names", names(admin));
      admin.deleteSnapshots(OWN);
    }
  }
}
