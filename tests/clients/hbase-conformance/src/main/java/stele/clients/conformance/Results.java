package stele.clients.conformance;

import java.io.PrintStream;
import java.util.LinkedHashMap;
import java.util.Map;
import org.junit.platform.engine.TestExecutionResult;
import org.junit.platform.engine.support.descriptor.MethodSource;
import org.junit.platform.launcher.TestExecutionListener;
import org.junit.platform.launcher.TestIdentifier;
import org.junit.platform.launcher.TestPlan;

/** Prints a line for each test. */
final class Results implements TestExecutionListener {
  private final PrintStream out;
  /** The simple name of the class. */
  private final String type;
  private TestPlan plan;
  /** Tests that have not ended, by their unique name. */
  private final Map<String, TestIdentifier> waiting = new LinkedHashMap<>();
  private boolean any;

  Results(PrintStream out, String type) {
    this.out = out;
    this.type = type.substring(type.lastIndexOf('.') + 1);
  }

  @Override
  public synchronized void testPlanExecutionStarted(TestPlan plan) {
    this.plan = plan;
    plan.getRoots().forEach(root -> plan.getDescendants(root).forEach(this::await));
  }

  @Override
  public synchronized void dynamicTestRegistered(TestIdentifier test) {
    await(test);
  }

  private void await(TestIdentifier test) {
    if (test.isTest()) {
      waiting.put(test.getUniqueId(), test);
    }
  }

  /** A test that its class switches off is none. */
  @Override
  public synchronized void executionSkipped(TestIdentifier skipped, String reason) {
    waiting.remove(skipped.getUniqueId());
    plan.getDescendants(skipped).forEach(test -> waiting.remove(test.getUniqueId()));
    any = true;
  }

  @Override
  public synchronized void executionFinished(TestIdentifier identifier, TestExecutionResult result) {
    Throwable failure = result.getThrowable().orElse(null);
    if (identifier.isTest()) {
      finish(identifier, failure);
      return;
    }
    if (failure == null) {
      return;
    }
    failure.printStackTrace();
    boolean before = false;
    for (TestIdentifier test : plan.getDescendants(identifier)) {
      if (waiting.containsKey(test.getUniqueId())) {
        finish(test, failure);
        before = true;
      }
    }
    if (!before) {
      print(NeedsMiniCluster.behind(failure) == null ? "failed" : "needs", type + ".(around)", failure);
    }
  }

  private void finish(TestIdentifier test, Throwable failure) {
    waiting.remove(test.getUniqueId());
    if (failure == null) {
      if (Target.used()) {
        print("passed", name(test), null);
      } else {
        print("failed", name(test), new IllegalStateException("it never asks for a server"));
      }
      return;
    }
    System.err.println("@@ " + name(test));
    failure.printStackTrace();
    boolean assumption = failure instanceof org.junit.AssumptionViolatedException
        || failure instanceof org.junit.internal.AssumptionViolatedException
        || failure instanceof org.opentest4j.TestAbortedException;
    print(assumption || NeedsMiniCluster.behind(failure) != null ? "needs" : "failed", name(test), failure);
  }

  /** Nothing follows; tests without an end have failed. */
  synchronized void end(String reason) {
    String message = reason == null ? "it did not run" : reason;
    waiting.values().forEach(test -> print("failed", name(test), new IllegalStateException(message)));
    if (!any && waiting.isEmpty()) {
      print("failed", "(class)", new IllegalStateException("it holds no test"));
    }
    out.flush();
  }

  private void print(String result, String name, Throwable failure) {
    any = true;
    out.println(result + "\t" + name + "\t" + (failure == null ? "" : message(failure)));
    out.flush();
  }

  private static String message(Throwable failure) {
    Throwable needs = NeedsMiniCluster.behind(failure);
    String text = (needs == null ? failure : needs).toString();
    text = text.replaceAll("\\s+", " ").replace("stele.clients.conformance.NeedsMiniCluster: got: ", "");
    return text.length() > 300 ? text.substring(0, 300) + "…" : text;
  }

  /** {@code Class.method}, and what tells apart its runs with different parameters. */
  private String name(TestIdentifier test) {
    String shown = test.getDisplayName().replaceAll("\\s+", "");
    String name = test.getSource()
        .filter(MethodSource.class::isInstance)
        .map(source -> ((MethodSource) source).getMethodName())
        .orElse("");
    String rest = shown.startsWith(name) ? shown.substring(name.length()) : "[" + shown + "]";
    if (test.isTest() && name.isEmpty()) {
      // The method is that of a class above.
      return type + "." + rest;
    }
    return type + "." + name + rest.replaceFirst("^\\([A-Za-z,]*\\)$", "");
  }
}
