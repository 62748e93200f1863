package stele.clients.conformance;

import org.junit.AssumptionViolatedException;

/** A test looks into the process of a mini-cluster, and there is none. */
public final class NeedsMiniCluster extends AssumptionViolatedException {
  private static final long serialVersionUID = 1;

  NeedsMiniCluster(String what) {
    super("needs " + what);
  }

  /** Whether it is behind a failure: tests wrap what their threads throw. */
  static NeedsMiniCluster behind(Throwable failure) {
    for (int depth = 0; failure != null && depth < 20; depth++) {
      if (failure instanceof NeedsMiniCluster) {
        return (NeedsMiniCluster) failure;
      }
      for (Throwable suppressed : failure.getSuppressed()) {
        NeedsMiniCluster found = behind(suppressed);
        if (found != null) {
          return found;
        }
      }
      failure = failure.getCause();
    }
    return null;
  }
}
