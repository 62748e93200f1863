package stele.clients.conformance;

import java.io.IOException;
import net.bytebuddy.implementation.bind.annotation.Argument;
import net.bytebuddy.implementation.bind.annotation.Origin;
import net.bytebuddy.implementation.bind.annotation.RuntimeType;
import net.bytebuddy.implementation.bind.annotation.This;
import org.apache.hadoop.hbase.HBaseTestingUtility;
import org.apache.hadoop.hbase.TableName;
import org.apache.hadoop.hbase.Waiter;
import org.apache.hadoop.hbase.client.Admin;
import org.apache.hadoop.hbase.shaded.protobuf.generated.SnapshotProtos;
import org.apache.hadoop.hbase.snapshot.SnapshotTestingUtils;

/** The methods that {@link Redefinition} puts in. */
public final class StandIn {
  private StandIn() {}

  /** Starts nothing: the running server becomes the mini-cluster. */
  @RuntimeType
  public static Object start(@This Object utility) throws IOException {
    if (!Target.begin(utility)) {
      return restart(utility);
    }
    return RunningCluster.of((HBaseTestingUtility) utility);
  }

  /** A cluster that a test has shut down comes back for the next test; this one needs a restart. */
  @RuntimeType
  public static Object restart(@This Object utility) {
    RunningCluster.attach((HBaseTestingUtility) utility);
    throw new NeedsMiniCluster("a restart");
  }

  /** The file system is shut down only with everything else. */
  @RuntimeType
  public static Object end(@This Object utility) {
    Target.end(utility);
    return null;
  }

  /** No region of the running server is ever in transition once a call has returned. */
  @RuntimeType
  public static Object settled() {
    return new Waiter.ExplainingPredicate<IOException>() {
      @Override
      public boolean evaluate() {
        return true;
      }

      @Override
      public String explainFailure() {
        return "";
      }
    };
  }

  /** The servers' files are in the running server. */
  @RuntimeType
  public static Object files() {
    return RunningCluster.files();
  }

  /** Instead of its files: it is listed, and is of this table. */
  @RuntimeType
  public static Object confirmSnapshot(
      @Argument(0) Object snapshot, @Argument(1) Object table, @Argument(5) Object admin) throws IOException {
    SnapshotTestingUtils.assertExistsMatchingSnapshot(
        (Admin) admin, ((SnapshotProtos.SnapshotDescription) snapshot).getName(), (TableName) table);
    return null;
  }

  @RuntimeType
  public static Object nothing() {
    return null;
  }

  @RuntimeType
  public static Object needs(@Origin String method) {
    String name = method.substring(0, method.indexOf('('));
    throw new NeedsMiniCluster("HBaseTestingUtility" + name.substring(name.lastIndexOf('.')));
  }
}
