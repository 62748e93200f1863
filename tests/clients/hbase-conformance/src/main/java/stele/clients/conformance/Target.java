package stele.clients.conformance;

import java.io.IOException;
import java.util.Collections;
import java.util.IdentityHashMap;
import java.util.Map;
import java.util.regex.Pattern;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.hbase.HBaseConfiguration;
import org.apache.hadoop.hbase.NamespaceDescriptor;
import org.apache.hadoop.hbase.TableName;
import org.apache.hadoop.hbase.client.Admin;
import org.apache.hadoop.hbase.client.Connection;
import org.apache.hadoop.hbase.client.ConnectionFactory;

/** The running server. */
final class Target {
  private static String address;
  private static String quorum;
  private static volatile boolean used;
  private static final Map<Object, Boolean> STARTED = Collections.synchronizedMap(new IdentityHashMap<>());

  private Target() {}

  static void set(String address, String quorum) {
    Target.address = address;
    Target.quorum = quorum;
  }

  /** Whether a test has asked for it. */
  static boolean used() {
    return used;
  }

  /** Tells a client where it is, whichever registry the client asks. */
  static void configure(Configuration configuration) {
    used = true;
    configuration.set("hbase.client.bootstrap.servers", address);
    configuration.set("hbase.masters", address);
    configuration.set("hbase.zookeeper.quorum", quorum.substring(0, quorum.lastIndexOf(':')));
    configuration.set("hbase.zookeeper.property.clientPort", quorum.substring(quorum.lastIndexOf(':') + 1));
  }

  /** Whether this is the first start of a utility's cluster, or the first after it was shut down as a whole. */
  static boolean begin(Object utility) {
    return STARTED.put(utility, true) == null;
  }

  static void end(Object utility) {
    STARTED.remove(utility);
  }

  /** Leaves it as a cluster is that has just started. */
  static void empty() throws IOException {
    Configuration configuration = HBaseConfiguration.create();
    configure(configuration);
    configuration.set("hbase.client.registry.impl", "org.apache.hadoop.hbase.client.RpcConnectionRegistry");
    try (Connection connection = ConnectionFactory.createConnection(configuration);
        Admin admin = connection.getAdmin()) {
      admin.deleteSnapshots(Pattern.compile(".*"));
      for (TableName table : admin.listTableNames()) {
        if (admin.isTableEnabled(table)) {
          admin.disableTable(table);
        }
        admin.deleteTable(table);
      }
      for (NamespaceDescriptor namespace : admin.listNamespaceDescriptors()) {
        if (!namespace.getName().equals("default") && !namespace.getName().equals("hbase")) {
          admin.deleteNamespace(namespace.getName());
        }
      }
      admin.splitSwitch(true, true);
      admin.mergeSwitch(true, true);
    }
  }
}
