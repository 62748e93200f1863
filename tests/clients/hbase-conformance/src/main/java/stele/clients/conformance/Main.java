package stele.clients.conformance;

import static org.junit.platform.engine.discovery.DiscoverySelectors.selectClass;

import java.io.IOException;
import java.io.PrintStream;
import java.nio.file.Files;
import java.nio.file.Path;
import org.junit.platform.launcher.Launcher;
import org.junit.platform.launcher.core.LauncherDiscoveryRequestBuilder;
import org.junit.platform.launcher.core.LauncherFactory;

/**
 * Runs one of HBase's test classes against a running server: {@code Main HOST:PORT QUORUM SECONDS CLASS}.
 *
 * <p>Prints one line for each test: {@code passed}, {@code failed} or {@code needs}, a tab, its name, a tab, and the
 * first line of the message. {@code needs} says that the test looks into the process of a mini-cluster. A class that has
 * not ended after SECONDS ends there, and its other tests have failed. All tables of the server are dropped.
 */
public final class Main {
  private Main() {}

  public static void main(String[] arguments) throws Exception {
    if (arguments.length != 4) {
      System.err.println("usage: Main HOST:PORT QUORUM SECONDS CLASS");
      System.exit(2);
    }
    // Tests print as they like; results have standard output to themselves.
    PrintStream results = System.out;
    System.setOut(System.err);
    Target.set(arguments[0], arguments[1]);
    Redefinition.install();
    Results listener = new Results(results, arguments[3]);
    configurationFiles();
    watch(listener, Long.parseLong(arguments[2]));
    Launcher launcher = LauncherFactory.create();
    launcher.execute(
        LauncherDiscoveryRequestBuilder.request().selectors(selectClass(arguments[3])).build(), listener);
    listener.end(null);
    leave();
  }

  /** A test may leave threads behind, and a security manager that lets nobody end the JVM. */
  @SuppressWarnings("removal")
  private static void leave() {
    System.setSecurityManager(null);
    Runtime.getRuntime().halt(0);
  }

  /** Where some tests look for configurations of servers, which they then change. */
  private static void configurationFiles() throws IOException {
    Path folder = Files.createDirectories(Path.of("target/test-classes"));
    for (String name : new String[] {"hbase-site.xml", "hbase-site2.xml", "override-hbase-site.xml"}) {
      Files.writeString(folder.resolve(name), "<configuration/>");
    }
  }

  private static void watch(Results listener, long seconds) {
    Thread watch = new Thread(() -> {
      try {
        Thread.sleep(seconds * 1000);
      } catch (InterruptedException never) {
        return;
      }
      Thread.getAllStackTraces().forEach((thread, trace) -> {
        System.err.println(thread);
        for (StackTraceElement element : trace) {
          System.err.println("\tat " + element);
        }
      });
      listener.end("the class has not ended after " + seconds + " s");
      leave();
    });
    watch.setDaemon(true);
    watch.start();
  }
}
