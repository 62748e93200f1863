package stele.clients.hbase;

import static stele.clients.hbase.Cells.b;
import static stele.clients.hbase.Cells.get;
import static stele.clients.hbase.Cells.put;

import org.apache.hadoop.hbase.client.Admin;
import org.apache.hadoop.hbase.client.ColumnFamilyDescriptor;
import org.apache.hadoop.hbase.client.ColumnFamilyDescriptorBuilder;
import org.apache.hadoop.hbase.client.Table;

/** Changes of the families of a table that has data. */
final class Families extends Area {
  Families() {
    super("families");
    add("add", this::added);
    add("delete", this::deleted);
    add("delete-and-add", this::deletedAndAdded);
    add("modify", this::modified);
    add("fewer-versions", this::fewerVersions);
    add("while-disabled", this::whileDisabled);
    add("errors", this::errors);
  }

  private void added(Case c) throws Exception {
    Table table = c.create("f");
    table.put(put("r", 1, "f:q=v"));
    c.failsAs("before", () -> table.put(put("r", 1, "g:q=v")));
    try (Admin admin = c.admin()) {
      admin.addColumnFamily(c.name,
          ColumnFamilyDescriptorBuilder.newBuilder(b("g")).setMaxVersions(3).setValue("own", "1").build());
      ColumnFamilyDescriptor family = admin.getDescriptor(c.name).getColumnFamily(b("g"));
      c.say("descriptor", family);
    }
    table.put(put("r", 1, "g:q=v"));
    c.get("row", table, get("r"));
  }

  private void deleted(Case c) throws Exception {
    Table table = c.create("f", "g");
    table.put(put("r", 1, "f:q=v", "g:q=v"));
    table.put(put("s", 1, "g:q=v"));
    try (Admin admin = c.admin()) {
      admin.deleteColumnFamily(c.name, b("g"));
      c.say("families", admin.getDescriptor(c.name).getColumnFamilyNames());
    }
    c.get("row", table, get("r"));
    c.get("row-without-cells", table, get("s"));
    c.failsAs("get", () -> table.get(get("r", "g")));
    c.failsAs("put", () -> table.put(put("r", 1, "g:q=v")));
  }

  /** A family that comes back is empty. */
  private void deletedAndAdded(Case c) throws Exception {
    Table table = c.create("f", "g");
    table.put(put("r", 1, "f:q=v", "g:q=old"));
    try (Admin admin = c.admin()) {
      admin.deleteColumnFamily(c.name, b("g"));
      admin.addColumnFamily(c.name, Case.family("g", 1));
    }
    c.get("row", table, get("r"));
    table.put(put("r", 1, "g:p=new"));
    c.get("row-after", table, get("r"));
  }

  private void modified(Case c) throws Exception {
    Table table = c.create("f");
    try (Admin admin = c.admin()) {
      ColumnFamilyDescriptor before = admin.getDescriptor(c.name).getColumnFamily(b("f"));
      admin.modifyColumnFamily(c.name,
          ColumnFamilyDescriptorBuilder.newBuilder(before).setMaxVersions(3).setInMemory(true)
          .setConfiguration("own.setting", "1").build());
      c.say("descriptor", admin.getDescriptor(c.name).getColumnFamily(b("f")));
    }
    for (int i = 1; i <= 4; i++) {
      table.put(put("r", i, "f:q=v" + i));
    }
    c.get("versions", table, get("r").readAllVersions());
  }

  private void fewerVersions(Case c) throws Exception {
    Table table = c.versions(4, "f");
    for (int i = 1; i <= 4; i++) {
      table.put(put("r", i, "f:q=v" + i));
    }
    c.get("before", table, get("r").readAllVersions());
    try (Admin admin = c.admin()) {
      admin.modifyColumnFamily(c.name, Case.family("f", 2));
    }
    c.get("after", table, get("r").readAllVersions());
  }

  private void whileDisabled(Case c) throws Exception {
    Table table = c.create("f");
    table.put(put("r", 1, "f:q=v"));
    try (Admin admin = c.admin()) {
      admin.disableTable(c.name);
      admin.addColumnFamily(c.name, Case.family("g", 1));
      c.say("families", admin.getDescriptor(c.name).getColumnFamilyNames());
      c.say("disabled", admin.isTableDisabled(c.name));
      admin.enableTable(c.name);
    }
    table.put(put("r", 1, "g:q=v"));
    c.get("row", table, get("r"));
  }

  private void errors(Case c) throws Exception {
    c.create("f");
    try (Admin admin = c.admin()) {
      c.failsAs("add-existing", () -> admin.addColumnFamily(c.name, Case.family("f", 1)));
      c.failsAs("modify-absent", () -> admin.modifyColumnFamily(c.name, Case.family("g", 1)));
      c.failsAs("delete-absent", () -> admin.deleteColumnFamily(c.name, b("g")));
      c.failsAs("delete-last", () -> admin.deleteColumnFamily(c.name, b("f")));
      c.failsAs("add-to-absent-table", () -> admin.addColumnFamily(c.other("none"), Case.family("f", 1)));
      c.say("families", admin.getDescriptor(c.name).getColumnFamilyNames());
    }
  }
}
