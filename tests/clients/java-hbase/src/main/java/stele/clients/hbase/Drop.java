package stele.clients.hbase;

import org.apache.hadoop.hbase.TableName;
import org.apache.hadoop.hbase.client.Admin;
import org.apache.hadoop.hbase.client.Connection;
import org.apache.hadoop.hbase.client.ConnectionFactory;

/** Drops a table if there is one: {@code Drop HOST:PORT TABLE}. Load programs take rows of an earlier run for their own. */
public final class Drop {
  private Drop() {}

  public static void main(String[] arguments) throws Exception {
    if (arguments.length != 2) {
      System.err.println("usage: Drop HOST:PORT TABLE");
      System.exit(2);
    }
    try (Connection connection = ConnectionFactory.createConnection(Transcript.configuration(arguments[0]));
        Admin admin = connection.getAdmin()) {
      Case.drop(admin, TableName.valueOf(arguments[1]));
    }
  }
}
