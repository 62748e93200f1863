package stele.clients.hbase;

import java.util.ArrayList;
import java.util.List;
import java.util.Random;

/** The random choices of one seed, from a space so small that requests meet. */
final class Draw {
  /** After the life of every reader, in ms. */
  static final long FUTURE = 4_102_444_800_000L;

  /** More than the increments and appends of one column. */
  private static final long CHANGES_MAX = 1_000;

  private static final List<String> ROWS = List.of("a", "a\\x00", "aa", "ab\\xFF", "b", "\\xFF\\xFF");
  /** Bounds may be of rows that are not there. */
  private static final List<String> BOUNDS = List.of("a", "a\\x00", "aa", "ab\\xFF", "b", "\\xFF\\xFF", "A",
      "a\\x00\\x00", "ab", "ab\\xFF\\x00", "c", "\\xFF");
  private static final List<String> QUALIFIERS = List.of("", "p", "pq", "\\xFF");
  private static final List<Long> TIMES = List.of(0L, 1L, 2L, 3L, 4L, 6L, FUTURE, FUTURE + 1);
  private static final List<String> VALUES = List.of("", "a", "ab", "b", "5", "\\xFF",
      "\\x00\\x00\\x00\\x00\\x00\\x00\\x00\\x01",
      "\\x00\\x00\\x00\\x00\\x00\\x00\\x01\\x2C", "\\xFF\\xFF\\xFF\\xFF\\xFF\\xFF\\xFF\\xFE");
  private static final String ABSENT_FAMILY = "none";
  private static final double ABSENT_CHANCE = 0.01;

  private final Random random;
  private boolean endsTimes = true;
  private List<String> qualifiers = QUALIFIERS;
  /** Names of the families. */
  final List<String> families;

  Draw(long seed) {
    // Neighbouring seeds begin alike without the multiplication.
    this.random = new Random(seed * 0x9E3779B97F4A7C15L);
    List<String> names = new ArrayList<>(List.of("f", "fa", "g"));
    while (names.size() > 1 && chance(0.35)) {
      names.remove(below(names.size()));
    }
    this.families = List.copyOf(names);
    if (chance(0.5)) {
      namesColumns();
    }
  }

  boolean chance(double probability) {
    return random.nextDouble() < probability;
  }

  int below(int end) {
    return random.nextInt(end);
  }

  /** Both inclusive. */
  int between(int first, int last) {
    return first + below(last - first + 1);
  }

  <T> T one(List<T> choices) {
    return choices.get(below(choices.size()));
  }

  /** The choice with the number that is drawn by these weights. */
  int weighted(int... weights) {
    int sum = 0;
    for (int weight : weights) {
      sum += weight;
    }
    int left = below(sum);
    int choice = 0;
    while (left >= weights[choice]) {
      left -= weights[choice++];
    }
    return choice;
  }

  String row() {
    return one(ROWS);
  }

  /** Different rows. */
  List<String> rows(int count) {
    List<String> rows = new ArrayList<>(ROWS);
    while (rows.size() > count) {
      rows.remove(below(rows.size()));
    }
    return rows;
  }

  String bound() {
    return one(BOUNDS);
  }

  String family() {
    return chance(ABSENT_CHANCE) ? ABSENT_FAMILY : one(families);
  }

  String qualifier() {
    return one(qualifiers);
  }

  /**
   * Whether filters may step to another column. In the column without a name HBase steps to its next version instead, or
   * passes over markers of the family behind that version.
   */
  boolean mayStepColumns() {
    return qualifiers != QUALIFIERS;
  }

  /** Leaves out the column without a name. */
  void namesColumns() {
    qualifiers = QUALIFIERS.subList(1, QUALIFIERS.size());
  }

  /** Of a column that is incremented: some increments of the column without a name do not end in HBase. */
  String named() {
    return one(QUALIFIERS.subList(1, QUALIFIERS.size()));
  }

  long time() {
    return one(TIMES);
  }

  String value() {
    return one(VALUES);
  }

  /**
   * Whether ranges of times may leave out the newest versions. In HBase they show versions that are too many until
   * these are collected, and in Stele they do not.
   */
  boolean endsTimes() {
    return endsTimes;
  }

  void endsTimes(boolean ends) {
    endsTimes = ends;
  }

  /** A range of times. */
  long[] times() {
    long first = one(TIMES);
    long second = one(TIMES);
    // Above all that is written, too: an increment or append comes after the cell that it changes.
    long end = !endsTimes || chance(0.2) ? FUTURE + CHANGES_MAX : Math.max(first, second);
    return new long[] {Math.min(first, second), end};
  }

  static String quoted(String text) {
    return "'" + text + "'";
  }

  static String time(long time) {
    return time >= FUTURE ? "F" + (time - FUTURE) : Long.toString(time);
  }
}
