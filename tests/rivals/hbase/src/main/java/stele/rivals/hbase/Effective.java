package stele.rivals.hbase;

import java.util.Map;
import java.util.TreeMap;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.hbase.HBaseConfiguration;
import org.apache.hadoop.hbase.util.VersionInfo;
import org.apache.hadoop.hdfs.HdfsConfiguration;

/**
 * Prints the configuration that HBase itself makes of the class path: one {@code KIND<TAB>NAME<TAB>VALUE} per line.
 *
 * <p>KIND is {@code version}, or the name of the file that decided the value: {@code hbase-site.xml} for what was set,
 * {@code hbase-default.xml} and the like for what HBase chose. Everything set is printed; of the defaults those that
 * bear on performance or durability. Tabs and line breaks inside a value become spaces.
 */
public final class Effective {
  /** Defaults worth a place in a report. Web pages, security, REST and Thrift gateways are not. */
  private static final String[] DEFAULTS = {
    "hbase.regionserver.", "hbase.hregion.", "hbase.hstore.", "hbase.wal.", "hbase.ipc.", "hbase.rpc.", "hbase.server.",
    "hbase.bucketcache.", "hbase.client.", "hbase.master.", "hbase.rs.", "hbase.offpeak.", "hbase.bulkload.",
    "hbase.dfs.", "hbase.balancer.", "hbase.normalizer.", "hbase.systemtables.", "hbase.table.", "hbase.column.",
    "hfile.", "zookeeper.session.timeout", "io.compression.", "io.file.buffer.size", "io.bytes.per.checksum",
    "dfs.replication", "dfs.blocksize", "dfs.bytes-per-checksum", "dfs.checksum.", "dfs.client.read.",
    "dfs.client-write-packet-size", "dfs.client.socket", "dfs.datanode.handler.count",
    "dfs.datanode.max.transfer.threads", "dfs.datanode.sync", "dfs.datanode.synconclose", "dfs.datanode.drop.cache",
    "dfs.datanode.readahead", "dfs.namenode.handler.count", "dfs.stream-buffer-size",
  };

  private Effective() {}

  public static void main(String[] arguments) {
    print("version", "hbase", VersionInfo.getVersion());
    print("version", "hadoop", org.apache.hadoop.util.VersionInfo.getVersion());
    print("version", "java", System.getProperty("java.vm.name") + " " + System.getProperty("java.runtime.version"));
    Map<String, String[]> found = new TreeMap<>();
    // HBase's view first; what only the file system's servers know is added from theirs.
    collect(HBaseConfiguration.create(), found);
    collect(new HdfsConfiguration(), found);
    found.forEach((name, where) -> print(where[0], name, where[1]));
  }

  private static void collect(Configuration configuration, Map<String, String[]> found) {
    for (Map.Entry<String, String> entry : configuration) {
      String name = entry.getKey();
      String file = origin(configuration, name);
      if (!found.containsKey(name) && (file.endsWith("-site.xml") || isOfInterest(name))) {
        found.put(name, new String[] {file, configuration.get(name)});
      }
    }
  }

  /** The file that had the last word, without its directory. */
  private static String origin(Configuration configuration, String name) {
    String[] sources = configuration.getPropertySources(name);
    if (sources == null || sources.length == 0) {
      return "programmatic";
    }
    String last = sources[sources.length - 1];
    return last.substring(last.lastIndexOf('/') + 1);
  }

  private static boolean isOfInterest(String name) {
    for (String prefix : DEFAULTS) {
      if (name.startsWith(prefix)) {
        return true;
      }
    }
    return false;
  }

  private static void print(String kind, String name, String value) {
    System.out.println(kind + "\t" + name + "\t" + (value == null ? "" : value.replaceAll("\\s+", " ")));
  }
}
