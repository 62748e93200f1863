package stele.clients.hbase;

import static stele.clients.hbase.Cells.get;
import static stele.clients.hbase.Cells.put;

import java.util.Arrays;
import java.util.List;
import org.apache.hadoop.hbase.NamespaceDescriptor;
import org.apache.hadoop.hbase.NamespaceNotFoundException;
import org.apache.hadoop.hbase.TableName;
import org.apache.hadoop.hbase.client.Admin;
import org.apache.hadoop.hbase.client.Table;

/** Namespaces and the tables in them. */
final class Namespaces extends Area {
  Namespaces() {
    super("namespaces", true);
    add("life", this::life);
    add("tables", this::tables);
    add("same-name", this::sameName);
    add("built-in", this::builtIn);
    add("errors", this::errors);
  }

  /** No such namespace, nor tables in it. */
  private static String fresh(Admin admin, String name) throws Exception {
    try {
      for (TableName table : admin.listTableNamesByNamespace(name)) {
        if (admin.isTableEnabled(table)) {
          admin.disableTable(table);
        }
        admin.deleteTable(table);
      }
      admin.deleteNamespace(name);
    } catch (NamespaceNotFoundException none) {
      // As it is wanted.
    }
    return name;
  }

  private static List<String> names(Admin admin) throws Exception {
    return Arrays.stream(admin.listNamespaceDescriptors()).map(NamespaceDescriptor::getName)
        .filter(name -> name.startsWith("ns_") || name.equals("default") || name.equals("hbase")).sorted().toList();
  }

  private void life(Case c) throws Exception {
    try (Admin admin = c.admin()) {
      String name = fresh(admin, "ns_life");
      c.say("before", names(admin));
      admin.createNamespace(NamespaceDescriptor.create(name).addConfiguration("own", "1").build());
      c.say("created", names(admin));
      c.say("listed", Arrays.asList(admin.listNamespaces()).contains(name));
      c.say("descriptor", admin.getNamespaceDescriptor(name));
      admin.modifyNamespace(
          NamespaceDescriptor.create(name).addConfiguration("own", "2").addConfiguration("more", "3").build());
      c.say("modified", admin.getNamespaceDescriptor(name));
      admin.deleteNamespace(name);
      c.say("deleted", names(admin));
    }
  }

  private void tables(Case c) throws Exception {
    try (Admin admin = c.admin()) {
      String name = fresh(admin, "ns_tables");
      admin.createNamespace(NamespaceDescriptor.create(name).build());
      TableName tableName = TableName.valueOf(name, "t");
      Table table = c.create(Case.described(tableName, 1, "f"), "m");
      table.put(List.of(put("a", 1, "f:q=v"), put("z", 1, "f:q=v")));
      c.scan("rows", table, Cells.scan());
      c.say("exists", admin.tableExists(tableName));
      c.say("exists-in-default", admin.tableExists(TableName.valueOf("t")));
      c.say("names", admin.listTableNamesByNamespace(name));
      c.say("descriptors", admin.listTableDescriptorsByNamespace(Cells.b(name)).size());
      c.say("by-pattern", admin.listTableNames(java.util.regex.Pattern.compile(name + ":.*")));
      c.say("descriptor", admin.getDescriptor(tableName).getTableName());
      c.say("regions", admin.getRegions(tableName).size());
      c.fails("delete-with-table", () -> admin.deleteNamespace(name));
      admin.disableTable(tableName);
      admin.deleteTable(tableName);
      admin.deleteNamespace(name);
      c.failsAs("gone", () -> admin.getNamespaceDescriptor(name));
    }
  }

  /** One name in two namespaces is two tables. */
  private void sameName(Case c) throws Exception {
    try (Admin admin = c.admin()) {
      String name = fresh(admin, "ns_same");
      admin.createNamespace(NamespaceDescriptor.create(name).build());
      TableName other = TableName.valueOf(name, c.name.getQualifierAsString());
      Table here = c.create("f");
      Table there = c.create(Case.described(other, 1, "f"));
      here.put(put("r", 1, "f:q=here"));
      there.put(put("r", 1, "f:q=there"));
      c.get("here", here, get("r"));
      c.get("there", there, get("r"));
      admin.disableTable(other);
      admin.deleteTable(other);
      c.get("here-after", here, get("r"));
      admin.deleteNamespace(name);
    }
  }

  private void builtIn(Case c) throws Exception {
    try (Admin admin = c.admin()) {
      c.say("default", admin.getNamespaceDescriptor("default"));
      c.say("hbase", admin.getNamespaceDescriptor("hbase"));
      c.say("system-tables",
          Arrays.asList(admin.listTableNamesByNamespace("hbase")).contains(TableName.META_TABLE_NAME));
      c.failsAs("delete-default", () -> admin.deleteNamespace("default"));
      c.failsAs("delete-hbase", () -> admin.deleteNamespace("hbase"));
    }
  }

  private void errors(Case c) throws Exception {
    try (Admin admin = c.admin()) {
      String name = fresh(admin, "ns_errors");
      c.fails("descriptor-absent", () -> admin.getNamespaceDescriptor(name));
      c.fails("delete-absent", () -> admin.deleteNamespace(name));
      c.fails("modify-absent", () -> admin.modifyNamespace(NamespaceDescriptor.create(name).build()));
      c.fails("tables-absent", () -> c.say("tables", admin.listTableNamesByNamespace(name)));
      c.fails("table-in-absent", () -> admin.createTable(Case.described(TableName.valueOf(name, "t"), 1, "f")));
      admin.createNamespace(NamespaceDescriptor.create(name).build());
      c.fails("create-existing", () -> admin.createNamespace(NamespaceDescriptor.create(name).build()));
      admin.deleteNamespace(name);
    }
  }
}
