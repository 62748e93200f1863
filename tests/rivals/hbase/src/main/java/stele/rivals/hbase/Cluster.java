package stele.rivals.hbase;

import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.hbase.HBaseConfiguration;

/** How these programs reach the HBase they are about: over RPC alone, at one address, as `stele-bench` does. */
final class Cluster {
  private static final String REGISTRY = "org.apache.hadoop.hbase.client.RpcConnectionRegistry";

  private Cluster() {}

  /** The configuration of a client that is told one server's `host:port`. */
  static Configuration client(String address) {
    Configuration configuration = HBaseConfiguration.create();
    configuration.set("hbase.client.registry.impl", REGISTRY);
    configuration.set("hbase.client.bootstrap.servers", address);
    return configuration;
  }
}
