package stele.clients.hbase;

import java.util.ArrayList;
import java.util.List;

/** Removes operations from a sequence as long as its last one still differs: delta debugging. */
final class Shrinking {
  /** Runs a shorter sequence; the difference at its last step, if there is one. */
  interface Trial {
    Comparison.Difference run(Sequence sequence) throws Exception;
  }

  /** A run takes two seconds: most of it is the making of tables. */
  private static final int RUNS_MAX = 60;

  private final Trial trial;
  private int runs;

  Shrinking(Trial trial) {
    this.trial = trial;
  }

  /** The shortest sequence that was found, with its difference; the text of both. */
  String shrink(Sequence whole, int position, Comparison.Difference difference) throws Exception {
    Schema schema = whole.schema();
    List<Step> before = new ArrayList<>(whole.steps().subList(0, position));
    before.removeIf(Step::isRead);
    Comparison.Difference least = attempt(schema, before, difference.step());
    if (least == null) {
      return "  it does not differ again\n" + whole.text();
    }
    for (int size = Math.max(before.size() / 2, 1); size >= 1 && runs < RUNS_MAX; size = next(size)) {
      for (int begin = 0; begin < before.size() && runs < RUNS_MAX; ) {
        List<Step> fewer = new ArrayList<>(before.subList(0, begin));
        fewer.addAll(before.subList(Math.min(begin + size, before.size()), before.size()));
        Comparison.Difference other = attempt(schema, fewer, difference.step());
        if (other == null) {
          begin += size;
        } else {
          before = fewer;
          least = other;
        }
      }
    }
    before = simplified(schema, before, difference.step());
    return new Sequence(schema, before).text() + least.text();
  }

  private static int next(int size) {
    return size == 1 ? 0 : size / 2;
  }

  /** The same steps with fewer parts. */
  private List<Step> simplified(Schema schema, List<Step> before, Step last) throws Exception {
    List<Step> least = before;
    for (int i = 0; i < least.size(); i++) {
      for (int next = 0; next < least.get(i).simpler().size() && runs < RUNS_MAX; ) {
        List<Step> simpler = new ArrayList<>(least);
        simpler.set(i, least.get(i).simpler().get(next));
        if (attempt(schema, simpler, last) == null) {
          next++;
        } else {
          least = simpler;
          next = 0;
        }
      }
    }
    return least;
  }

  private Comparison.Difference attempt(Schema schema, List<Step> before, Step last) throws Exception {
    runs++;
    List<Step> steps = new ArrayList<>(before);
    steps.add(last);
    return trial.run(new Sequence(schema, steps));
  }
}
