package stele.clients.conformance;

import static net.bytebuddy.matcher.ElementMatchers.named;
import static net.bytebuddy.matcher.ElementMatchers.namedOneOf;
import static net.bytebuddy.matcher.ElementMatchers.takesArgument;
import static net.bytebuddy.matcher.ElementMatchers.takesArguments;

import net.bytebuddy.ByteBuddy;
import net.bytebuddy.asm.Advice;
import net.bytebuddy.description.method.MethodDescription;
import net.bytebuddy.description.type.TypeDescription;
import net.bytebuddy.dynamic.ClassFileLocator;
import net.bytebuddy.dynamic.DynamicType;
import net.bytebuddy.dynamic.loading.ClassLoadingStrategy;
import net.bytebuddy.implementation.MethodDelegation;
import net.bytebuddy.matcher.ElementMatcher;
import net.bytebuddy.pool.TypePool;

/**
 * Replaces methods of HBase's test helpers by those of {@link StandIn}: those that start a mini-cluster, or parts of one,
 * and those that look into its files. The many others stay, since they go through the public client. Tables get the
 * {@link Pace} that some tests ask for.
 */
final class Redefinition {
  private static final String PACKAGE = "org.apache.hadoop.hbase.";

  /** They start parts, or make regions inside this JVM: a test of those would test HBase's own server. */
  private static final String[] PARTS = {
    "createLocalHRegion", "createLocalHRegionWithInMemoryFlags", "createMockRegionServerService",
    "createMultiRegionsInMeta", "createRegionAndWAL", "createTestRegion", "createWal", "expireMasterSession",
    "expireRegionServerSession", "expireSession", "invalidateConnection", "killMiniHBaseCluster",
    "setupMiniKdc", "startMiniDFSCluster", "startMiniDFSClusterForTestWAL",
    "startMiniMapReduceCluster", "startMiniZKCluster",
  };

  /** The writing methods of a table. */
  private static final String[] WRITES = {
    "append", "batch", "checkAndDelete", "checkAndMutate", "checkAndPut", "delete", "doCheckAndMutate", "increment",
    "incrementColumnValue", "mutateRow", "put",
  };

  private static final ClassLoader LOADER = Redefinition.class.getClassLoader();
  private static final ClassFileLocator FILES = ClassFileLocator.ForClassLoader.of(LOADER);
  private static final TypePool TYPES = TypePool.Default.of(FILES);

  private DynamicType.Builder<?> type;

  private Redefinition(String name) {
    type = new ByteBuddy().redefine(TYPES.describe(PACKAGE + name).resolve(), FILES);
  }

  /** To be called before anything loads these classes. */
  static void install() {
    new Redefinition("HBaseTestingUtility")
        .replace(
            namedOneOf("startMiniCluster", "startMiniHBaseCluster")
                .and(takesArgument(0, named(PACKAGE + "StartMiniClusterOption"))),
            "start")
        .replace(named("restartHBaseCluster"), "restart")
        .replace(named("shutdownMiniDFSCluster"), "end")
        .replace(named("predicateNoRegionsInTransition"), "settled")
        .replace(named("getTestFileSystem"), "files")
        .replace(namedOneOf(PARTS), "needs")
        .load();
    new Redefinition("snapshot.SnapshotTestingUtils")
        .replace(takesArguments(7).and(named("confirmSnapshotValid")), "confirmSnapshot")
        .replace(named("deleteArchiveDirectory"), "nothing")
        .load();
    new Redefinition("client.HTable").pace(namedOneOf(WRITES)).load();
    new Redefinition("util.CommonFSUtils").replace(named("logFileSystemState"), "nothing").load();
  }

  private Redefinition replace(ElementMatcher<? super MethodDescription> which, String by) {
    TypeDescription standIn = TYPES.describe("stele.clients.conformance.StandIn").resolve();
    type = type.method(which).intercept(MethodDelegation.withDefaultConfiguration().filter(named(by)).to(standIn));
    return this;
  }

  private Redefinition pace(ElementMatcher<? super MethodDescription> which) {
    TypeDescription pace = TYPES.describe("stele.clients.conformance.Pace").resolve();
    type = type.visit(Advice.to(pace, FILES).on(which));
    return this;
  }

  private void load() {
    type.make().load(LOADER, ClassLoadingStrategy.Default.INJECTION);
  }
}
