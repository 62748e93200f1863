package stele.clients.conformance;

import net.bytebuddy.asm.Advice;
import org.apache.hadoop.hbase.util.EnvironmentEdgeManager;
import org.apache.hadoop.hbase.util.NonRepeatedEnvironmentEdge;

/**
 * Gives each write a millisecond of its own, for tests that ask for this: they put a clock that never repeats a time into
 * their process, for the servers in it. The end of each writing method of a table waits for the next millisecond.
 */
public final class Pace {
  private Pace() {}

  @Advice.OnMethodExit(onThrowable = Throwable.class)
  static void exit() {
    Pace.waitForNextMillisecond();
  }

  public static void waitForNextMillisecond() {
    if (EnvironmentEdgeManager.getDelegate() instanceof NonRepeatedEnvironmentEdge) {
      long now = System.currentTimeMillis();
      while (System.currentTimeMillis() == now) {
        Thread.onSpinWait();
      }
    }
  }
}
