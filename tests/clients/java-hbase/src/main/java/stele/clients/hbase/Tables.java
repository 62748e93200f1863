package stele.clients.hbase;

import static stele.clients.hbase.Cells.b;
import static stele.clients.hbase.Cells.get;
import static stele.clients.hbase.Cells.put;
import static stele.clients.hbase.Cells.scan;

import java.util.List;
import java.util.regex.Pattern;
import org.apache.hadoop.hbase.KeepDeletedCells;
import org.apache.hadoop.hbase.TableName;
import org.apache.hadoop.hbase.client.Admin;
import org.apache.hadoop.hbase.client.ColumnFamilyDescriptorBuilder;
import org.apache.hadoop.hbase.client.Durability;
import org.apache.hadoop.hbase.client.Table;
import org.apache.hadoop.hbase.client.TableDescriptor;
import org.apache.hadoop.hbase.client.TableDescriptorBuilder;
import org.apache.hadoop.hbase.io.compress.Compression;
import org.apache.hadoop.hbase.io.encoding.DataBlockEncoding;
import org.apache.hadoop.hbase.regionserver.BloomType;

/** Tables as wholes. */
final class Tables extends Area {
  Tables() {
    super("tables");
    add("life", this::life);
    add("splits", this::splits);
    add("many-splits", this::manySplits);
    add("descriptor-default", this::descriptorDefault);
    add("descriptor", this::descriptor);
    add("descriptor-unknown", this::descriptorUnknown);
    add("many-families", this::manyFamilies);
    add("list", this::list);
    add("disabled", this::disabled);
    add("enabled-again", this::enabledAgain);
    add("truncate", this::truncate);
    add("truncate-with-splits", this::truncateWithSplits);
    add("recreated", this::recreated);
    add("clone-schema", this::cloneSchema);
    add("read-only", this::readOnly);
    add("modify", this::modify);
    add("futures", this::futures);
    add("errors", this::errors);
    add("refused-descriptors", this::refusedDescriptors);
  }

  private void life(Case c) throws Exception {
    try (Admin admin = c.admin()) {
      c.say("exists-before", admin.tableExists(c.name));
      admin.createTable(Case.described(c.name, 1, "f"));
      c.say("exists", admin.tableExists(c.name));
      c.say("enabled", admin.isTableEnabled(c.name));
      c.say("disabled", admin.isTableDisabled(c.name));
      c.say("available", admin.isTableAvailable(c.name));
      c.say("regions", admin.getRegions(c.name).size());
      admin.disableTable(c.name);
      c.say("disabled-after", admin.isTableDisabled(c.name));
      c.say("exists-after", admin.tableExists(c.name));
      admin.deleteTable(c.name);
      c.say("exists-at-end", admin.tableExists(c.name));
      c.say("available-at-end", admin.isTableAvailable(c.name));
    }
  }

  private void splits(Case c) throws Exception {
    try (Admin admin = c.admin()) {
      Table table = c.create(Case.described(c.name, 1, "f"), "m", "c", "\\xFF\\x00", "t,u");
      c.say("regions", Regions.ranges(admin, c.name));
      for (String row : List.of("a", "c", "t", "t,u", "t,,", "u", "\\xFF", "\\xFF\\xFF")) {
        table.put(put(row, 1, "f:q=v"));
      }
      c.scan("rows", table, scan());
      c.fails("twice-the-same", () -> admin.createTable(Case.described(c.other("x"), 1, "f"), Cells.all("a", "a")));
      c.fails("empty-key", () -> admin.createTable(Case.described(c.other("y"), 1, "f"), Cells.all("a", "")));
    }
  }

  private void manySplits(Case c) throws Exception {
    try (Admin admin = c.admin()) {
      admin.createTable(Case.described(c.name, 1, "f"), b("a"), b("z"), 20);
      c.say("regions", admin.getRegions(c.name).size());
      c.say("first-and-last",
          List.of(admin.getRegions(c.name).get(0).getEndKey(), admin.getRegions(c.name).get(19).getStartKey()));
    }
  }

  private static void described(Case c, TableDescriptor wanted) throws Exception {
    try (Admin admin = c.admin()) {
      admin.createTable(wanted);
      TableDescriptor got = admin.getDescriptor(c.name);
      c.say("text", got);
      c.say("as-wanted", TableDescriptor.COMPARATOR.compare(got, wanted) == 0);
      for (var family : got.getColumnFamilies()) {
        c.say("family." + family.getNameAsString(), family);
        c.say("family-as-wanted." + family.getNameAsString(), family.equals(wanted.getColumnFamily(family.getName())));
      }
      c.say("values", got.getValues());
      c.say("listed", admin.listTableDescriptors(List.of(c.name)).get(0).equals(got));
    }
  }

  private void descriptorDefault(Case c) throws Exception {
    described(c, Case.described(c.name, 1, "f"));
  }

  private void descriptor(Case c) throws Exception {
    described(c, TableDescriptorBuilder.newBuilder(c.name).setMaxFileSize(1L << 30).setMemStoreFlushSize(64L << 20)
        .setDurability(Durability.ASYNC_WAL).setCompactionEnabled(false).setNormalizationEnabled(true).setPriority(7)
        .setColumnFamily(ColumnFamilyDescriptorBuilder.newBuilder(b("all")).setMaxVersions(7).setMinVersions(2)
            .setTimeToLive(86_400).setKeepDeletedCells(KeepDeletedCells.TTL).setBloomFilterType(BloomType.ROWCOL)
            .setCompressionType(Compression.Algorithm.NONE).setDataBlockEncoding(DataBlockEncoding.FAST_DIFF)
            .setBlocksize(32_768).setBlockCacheEnabled(false).setInMemory(true).setScope(1)
            .setPrefetchBlocksOnOpen(true).setCacheDataOnWrite(true).setDFSReplication((short) 1).build())
        .setColumnFamily(ColumnFamilyDescriptorBuilder.of("plain")).build());
  }

  private void descriptorUnknown(Case c) throws Exception {
    described(c, TableDescriptorBuilder.newBuilder(c.name).setValue("of-an-application", "kept")
        .setValue("hbase.hregion.majorcompaction", "0").setValue(b("\\x00binary"), b("\\xFF\\xFE"))
        .setColumnFamily(ColumnFamilyDescriptorBuilder.newBuilder(b("f")).setValue("own", "attribute")
            .setConfiguration("hbase.hstore.blockingStoreFiles", "20").setConfiguration("own.setting", "value").build())
        .build());
  }

  private void manyFamilies(Case c) throws Exception {
    String[] families = new String[20];
    for (int i = 0; i < families.length; i++) {
      families[i] = "f" + i * 7 % 20;
    }
    Table table = c.create(families);
    for (String family : families) {
      table.put(put("r", 1, family + ":q=" + family));
    }
    c.get("row", table, get("r"));
    try (Admin admin = c.admin()) {
      c.say("names", admin.getDescriptor(c.name).getColumnFamilyNames());
    }
  }

  private void list(Case c) throws Exception {
    try (Admin admin = c.admin()) {
      TableName first = c.other("a");
      TableName second = c.other("b");
      admin.createTable(Case.described(second, 1, "f"));
      admin.createTable(Case.described(first, 1, "f"));
      Pattern own = Pattern.compile(c.name.getNameAsString() + "_.*");
      c.say("names", admin.listTableNames(own));
      c.say("names-one", admin.listTableNames(Pattern.compile(".*list_b")));
      c.say("names-part", admin.listTableNames(Pattern.compile("ables_list")));
      c.say("descriptors", admin.listTableDescriptors(own).stream().map(TableDescriptor::getTableName).toList());
      c.say("descriptors-of",
          admin.listTableDescriptors(List.of(second, first)).stream().map(TableDescriptor::getTableName).toList());
      c.say("of-namespace", List.of(admin.listTableNamesByNamespace("default")).contains(first));
      c.say("all", List.of(admin.listTableNames()).containsAll(List.of(first, second)));
      c.say("all-without-meta", List.of(admin.listTableNames()).contains(TableName.META_TABLE_NAME));
      c.say("system", admin.listTableNames(Pattern.compile("hbase:meta"), true));
      c.say("states", admin.isTableEnabled(first));
      admin.disableTable(first);
      c.say("disabled-is-listed", admin.listTableNames(own));
      c.say("by-state", admin.listTableNamesByState(false).contains(first) + " "
          + admin.listTableNamesByState(true).contains(first));
    }
  }

  private void disabled(Case c) throws Exception {
    Table table = c.create("f");
    table.put(put("r", 1, "f:q=v"));
    try (Admin admin = c.admin()) {
      admin.disableTable(c.name);
      c.failsAs("get", () -> table.get(get("r")));
      c.failsAs("put", () -> table.put(put("r", 2, "f:q=v")));
      c.failsAs("scan", () -> c.scan("rows", table, scan()));
      c.failsAs("batch", () -> table.batch(List.of(put("r", 2, "f:q=v")), new Object[1]));
      c.failsAs("flush", () -> admin.flush(c.name));
      c.failsAs("disable-again", () -> admin.disableTable(c.name));
      c.say("enabled", admin.isTableEnabled(c.name));
      c.say("regions", admin.getRegions(c.name).size());
      c.say("descriptor", admin.getDescriptor(c.name).getTableName());
    }
  }

  private void enabledAgain(Case c) throws Exception {
    Table table = c.create(Case.described(c.name, 1, "f"), "m");
    table.put(List.of(put("a", 1, "f:q=v"), put("z", 1, "f:q=v")));
    try (Admin admin = c.admin()) {
      admin.disableTable(c.name);
      admin.enableTable(c.name);
      c.say("enabled", admin.isTableEnabled(c.name));
      c.failsAs("enable-again", () -> admin.enableTable(c.name));
    }
    c.scan("rows", table, scan());
    table.put(put("b", 1, "f:q=new"));
    c.get("new", table, get("b"));
  }

  private void truncate(Case c) throws Exception {
    Table table = c.create(Case.described(c.name, 4, "f", "e"), "m");
    table.put(List.of(put("a", 1, "f:q=v"), put("z", 1, "f:q=v")));
    try (Admin admin = c.admin()) {
      c.failsAs("enabled", () -> admin.truncateTable(c.name, false));
      admin.disableTable(c.name);
      admin.truncateTable(c.name, false);
      c.say("regions", Regions.ranges(admin, c.name));
      c.say("enabled-after", admin.isTableEnabled(c.name));
      c.say("versions", admin.getDescriptor(c.name).getColumnFamily(b("f")).getMaxVersions());
    }
    c.scan("rows", table, scan());
    table.put(put("b", 1, "f:q=new"));
    c.scan("rows-after", table, scan());
  }

  private void truncateWithSplits(Case c) throws Exception {
    Table table = c.create(Case.described(c.name, 1, "f"), "g", "m");
    table.put(List.of(put("a", 1, "f:q=v"), put("z", 1, "f:q=v")));
    try (Admin admin = c.admin()) {
      admin.disableTable(c.name);
      admin.truncateTable(c.name, true);
      c.say("regions", Regions.ranges(admin, c.name));
    }
    c.scan("rows", table, scan());
    table.put(put("z", 1, "f:q=new"));
    c.scan("rows-after", table, scan());
  }

  /** The client still has the places of the first table. */
  private void recreated(Case c) throws Exception {
    Table table = c.create(Case.described(c.name, 1, "f"), "m");
    table.put(List.of(put("a", 1, "f:q=v"), put("z", 1, "f:q=v")));
    try (Admin admin = c.admin()) {
      admin.disableTable(c.name);
      admin.deleteTable(c.name);
      c.failsAs("deleted", () -> table.get(get("a")));
      admin.createTable(Case.described(c.name, 1, "f"), Cells.all("c", "x"));
      c.scan("rows", table, scan());
      table.put(List.of(put("d", 1, "f:q=new"), put("z", 1, "f:q=new")));
      c.scan("rows-after", table, scan());
    }
  }

  private void cloneSchema(Case c) throws Exception {
    c.create(Case.described(c.name, 4, "f", "e"), "m");
    try (Admin admin = c.admin()) {
      TableName with = c.other("with");
      TableName without = c.other("without");
      admin.cloneTableSchema(c.name, with, true);
      admin.cloneTableSchema(c.name, without, false);
      c.say("with", Regions.ranges(admin, with));
      c.say("without", Regions.ranges(admin, without));
      c.say("families", admin.getDescriptor(with).getColumnFamilyNames());
      c.failsAs("exists", () -> admin.cloneTableSchema(c.name, with, true));
      c.failsAs("absent", () -> admin.cloneTableSchema(TableName.valueOf("tables_none"), c.other("z"), true));
    }
  }

  private void readOnly(Case c) throws Exception {
    Table table = c.create("f");
    table.put(put("r", 1, "f:q=v"));
    try (Admin admin = c.admin()) {
      admin.modifyTable(TableDescriptorBuilder.newBuilder(admin.getDescriptor(c.name)).setReadOnly(true).build());
      c.get("get", table, get("r"));
      c.failsAs("put", () -> table.put(put("r", 2, "f:q=w")));
      c.failsAs("delete", () -> table.delete(Cells.delete("r")));
      c.failsAs("increment", () -> table.increment(Cells.increment("r", 1, "f:n")));
      admin.modifyTable(TableDescriptorBuilder.newBuilder(admin.getDescriptor(c.name)).setReadOnly(false).build());
      table.put(put("r", 2, "f:q=w"));
      c.get("after", table, get("r"));
    }
  }

  private void modify(Case c) throws Exception {
    Table table = c.create("f", "gone");
    table.put(put("r", 1, "f:q=v", "gone:q=v"));
    try (Admin admin = c.admin()) {
      TableDescriptor before = admin.getDescriptor(c.name);
      admin.modifyTable(
          TableDescriptorBuilder.newBuilder(before).setValue("own", "1").setMaxFileSize(2L << 30).build());
      c.say("attribute", admin.getDescriptor(c.name).getValue("own") + " "
          + admin.getDescriptor(c.name).getMaxFileSize());
      admin.modifyTable(TableDescriptorBuilder.newBuilder(admin.getDescriptor(c.name)).removeValue(b("own")).build());
      c.say("attribute-removed", admin.getDescriptor(c.name).getValue("own"));
      admin.modifyTable(TableDescriptorBuilder.newBuilder(admin.getDescriptor(c.name)).removeColumnFamily(b("gone"))
          .setColumnFamily(Case.family("new", 2)).build());
      c.say("families", admin.getDescriptor(c.name).getColumnFamilyNames());
    }
    table.put(put("r", 2, "new:q=v"));
    c.get("row", table, get("r"));
    c.failsAs("gone", () -> table.get(get("r", "gone")));
  }

  private void futures(Case c) throws Exception {
    try (Admin admin = c.admin()) {
      admin.createTableAsync(Case.described(c.name, 1, "f")).get();
      c.say("created", admin.tableExists(c.name));
      admin.disableTableAsync(c.name).get();
      c.say("disabled", admin.isTableDisabled(c.name));
      admin.enableTableAsync(c.name).get();
      c.say("enabled", admin.isTableEnabled(c.name));
      admin.disableTableAsync(c.name).get();
      admin.truncateTableAsync(c.name, false).get();
      admin.disableTableAsync(c.name).get();
      admin.deleteTableAsync(c.name).get();
      c.say("deleted", !admin.tableExists(c.name));
      c.failsAs("delete-again", () -> admin.deleteTableAsync(c.name).get());
    }
  }

  private void errors(Case c) throws Exception {
    c.create("f");
    TableName none = c.other("none");
    try (Admin admin = c.admin()) {
      c.fails("create-existing", () -> admin.createTable(Case.described(c.name, 1, "f")));
      c.fails("delete-enabled", () -> admin.deleteTable(c.name));
      c.fails("enable-enabled", () -> admin.enableTable(c.name));
      c.fails("delete-absent", () -> admin.deleteTable(none));
      c.fails("disable-absent", () -> admin.disableTable(none));
      c.fails("enable-absent", () -> admin.enableTable(none));
      c.fails("truncate-absent", () -> admin.truncateTable(none, true));
      c.fails("enabled-absent", () -> admin.isTableEnabled(none));
      c.fails("descriptor-absent", () -> admin.getDescriptor(none));
      c.fails("modify-absent", () -> admin.modifyTable(Case.described(none, 1, "f")));
      c.fails("flush-absent", () -> admin.flush(none));
      c.fails("regions-absent", () -> c.say("regions-of-absent", admin.getRegions(none)));
      c.say("descriptors-of-absent", admin.listTableDescriptors(List.of(none)));
      c.fails("meta-disable", () -> admin.disableTable(TableName.META_TABLE_NAME));
    }
  }

  private void refusedDescriptors(Case c) throws Exception {
    try (Admin admin = c.admin()) {
      c.failsAs("no-family", () -> admin.createTable(TableDescriptorBuilder.newBuilder(c.name).build()));
      c.failsAs("small-files", () -> admin.createTable(
          TableDescriptorBuilder.newBuilder(Case.described(c.name, 1, "f")).setMaxFileSize(1_000).build()));
      c.failsAs("small-memory", () -> admin.createTable(
          TableDescriptorBuilder.newBuilder(Case.described(c.name, 1, "f")).setMemStoreFlushSize(1_000).build()));
      c.failsAs("no-versions", () -> admin.createTable(Case.described(c.name, 0, "f")));
      c.failsAs("more-least-than-most",
          () -> admin.createTable(TableDescriptorBuilder.newBuilder(c.name).setColumnFamily(
          ColumnFamilyDescriptorBuilder.newBuilder(b("f")).setMaxVersions(1).setMinVersions(2).build()).build()));
      c.failsAs("no-lifetime", () -> admin.createTable(TableDescriptorBuilder.newBuilder(c.name).setColumnFamily(
          ColumnFamilyDescriptorBuilder.newBuilder(b("f")).setTimeToLive(0).build()).build()));
      c.failsAs("small-blocks", () -> admin.createTable(TableDescriptorBuilder.newBuilder(c.name).setColumnFamily(
          ColumnFamilyDescriptorBuilder.newBuilder(b("f")).setBlocksize(10).build()).build()));
      c.failsAs("absent-split-policy", () -> admin.createTable(
          TableDescriptorBuilder.newBuilder(Case.described(c.name, 1, "f"))
              .setRegionSplitPolicyClassName("none.Such").build()));
      c.failsAs("absent-coprocessor", () -> admin.createTable(
          TableDescriptorBuilder.newBuilder(Case.described(c.name, 1, "f")).setCoprocessor("none.Such").build()));
      c.say("exists", admin.tableExists(c.name));
    }
  }
}
