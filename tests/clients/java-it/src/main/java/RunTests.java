import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;
import java.util.Set;
import org.junit.runner.Description;
import org.junit.runner.JUnitCore;
import org.junit.runner.Request;
import org.junit.runner.manipulation.Filter;
import org.junit.runner.notification.Failure;
import org.junit.runner.notification.RunListener;

/**
 * Runs JUnit tests, and prints a line for each: its result, {@code Class.method}, and the message of a failure, with tabs between.
 *
 * <p>Arguments: names of classes, and after {@code --without} names of tests that are left out.
 */
public final class RunTests {
  private final Set<String> leftOut = new HashSet<>();
  private final Set<String> ended = new HashSet<>();

  public static void main(String[] arguments) throws ClassNotFoundException {
    RunTests run = new RunTests();
    List<Class<?>> classes = new ArrayList<>();
    boolean without = false;
    for (String argument : arguments) {
      if (argument.equals("--without")) {
        without = true;
      } else if (without) {
        run.leftOut.add(argument);
      } else {
        classes.add(Class.forName(argument));
      }
    }
    run.all(classes);
    // Threads of the client may be left, and keep the program alive.
    System.exit(0);
  }

  private void all(List<Class<?>> classes) {
    JUnitCore core = new JUnitCore();
    core.addListener(new Printer());
    core.run(Request.classes(classes.toArray(new Class<?>[0])).filterWith(new Without()));
  }

  /** {@code Class.method}, or {@code Class} for a failure of what all its tests share. */
  private static String name(Description test) {
    Class<?> type = test.getTestClass();
    String of = type == null ? test.getDisplayName() : type.getSimpleName();
    return test.getMethodName() == null ? of : of + "." + test.getMethodName();
  }

  private void print(String result, Description test, Throwable why) {
    if (ended.add(name(test))) {
      String message = why == null ? "" : why.toString().replaceAll("\\s+", " ");
      System.out.println(result + "\t" + name(test) + "\t" + message);
    }
    if (why != null && result.equals("failed")) {
      why.printStackTrace();
    }
  }

  private final class Without extends Filter {
    @Override
    public boolean shouldRun(Description test) {
      if (test.isTest()) {
        return !leftOut.contains(name(test));
      }
      return test.getChildren().stream().anyMatch(this::shouldRun);
    }

    @Override
    public String describe() {
      return "without " + leftOut;
    }
  }

  /** The first result of a test counts; the one that says that it has ended comes last. */
  private final class Printer extends RunListener {
    @Override
    public void testFailure(Failure failure) {
      print("failed", failure.getDescription(), failure.getException());
    }

    @Override
    public void testAssumptionFailure(Failure failure) {
      print("skipped", failure.getDescription(), failure.getException());
    }

    @Override
    public void testIgnored(Description test) {
      print("skipped", test, null);
    }

    @Override
    public void testFinished(Description test) {
      print("passed", test, null);
    }
  }
}
