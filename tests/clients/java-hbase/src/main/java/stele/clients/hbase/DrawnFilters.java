package stele.clients.hbase;

import static stele.clients.hbase.Cells.b;
import static stele.clients.hbase.Draw.quoted;

import java.util.ArrayList;
import java.util.List;
import java.util.TreeSet;
import org.apache.hadoop.hbase.CompareOperator;
import org.apache.hadoop.hbase.filter.ByteArrayComparable;
import org.apache.hadoop.hbase.filter.ColumnCountGetFilter;
import org.apache.hadoop.hbase.filter.ColumnPaginationFilter;
import org.apache.hadoop.hbase.filter.ColumnPrefixFilter;
import org.apache.hadoop.hbase.filter.ColumnRangeFilter;
import org.apache.hadoop.hbase.filter.ColumnValueFilter;
import org.apache.hadoop.hbase.filter.DependentColumnFilter;
import org.apache.hadoop.hbase.filter.FamilyFilter;
import org.apache.hadoop.hbase.filter.Filter;
import org.apache.hadoop.hbase.filter.FilterList;
import org.apache.hadoop.hbase.filter.FirstKeyOnlyFilter;
import org.apache.hadoop.hbase.filter.FirstKeyValueMatchingQualifiersFilter;
import org.apache.hadoop.hbase.filter.FuzzyRowFilter;
import org.apache.hadoop.hbase.filter.InclusiveStopFilter;
import org.apache.hadoop.hbase.filter.KeyOnlyFilter;
import org.apache.hadoop.hbase.filter.MultiRowRangeFilter;
import org.apache.hadoop.hbase.filter.MultipleColumnPrefixFilter;
import org.apache.hadoop.hbase.filter.PageFilter;
import org.apache.hadoop.hbase.filter.PrefixFilter;
import org.apache.hadoop.hbase.filter.QualifierFilter;
import org.apache.hadoop.hbase.filter.RandomRowFilter;
import org.apache.hadoop.hbase.filter.RowFilter;
import org.apache.hadoop.hbase.filter.SingleColumnValueExcludeFilter;
import org.apache.hadoop.hbase.filter.SingleColumnValueFilter;
import org.apache.hadoop.hbase.filter.SkipFilter;
import org.apache.hadoop.hbase.filter.TimestampsFilter;
import org.apache.hadoop.hbase.filter.ValueFilter;
import org.apache.hadoop.hbase.filter.WhileMatchFilter;
import org.apache.hadoop.hbase.util.Bytes;
import org.apache.hadoop.hbase.util.Pair;

/** Draws trees of filters. A filter of chance has no chance that is between never and always. */
final class DrawnFilters {
  private static final int DEPTH_MAX = 3;
  private static final List<String> PREFIXES = List.of("", "a", "a\\x00", "aa", "ab", "b", "\\xFF");
  private static final List<String> COLUMN_PREFIXES = List.of("", "p", "pq", "\\xFF", "o", "q");
  private static final List<CompareOperator> OPERATORS = List.of(CompareOperator.LESS, CompareOperator.LESS_OR_EQUAL,
      CompareOperator.EQUAL, CompareOperator.NOT_EQUAL, CompareOperator.GREATER_OR_EQUAL, CompareOperator.GREATER);

  private final Draw draw;
  private final DrawnComparators comparators;
  /** Of the filter being drawn: whether it may step to another column. */
  private boolean steps;
  /** Whether it is for a reversed scan, in which HBase may not end at a fuzzy key. */
  private boolean isReversed;

  DrawnFilters(Draw draw) {
    this.draw = draw;
    this.comparators = new DrawnComparators(draw);
  }

  /**
   * Of a read that returns markers, or of another. Those of families are in the column without a name, over which HBase
   * does not step.
   */
  Drawn<Filter> filter(boolean isRaw, boolean isReversed) {
    this.steps = draw.mayStepColumns() && !isRaw;
    this.isReversed = isReversed;
    return filter(0);
  }

  private Drawn<Filter> filter(int depth) {
    boolean mayNest = depth < DEPTH_MAX;
    return switch (draw.weighted(mayNest ? 5 : 0, mayNest ? 1 : 0, mayNest ? 1 : 0, 4, 5, 5)) {
      case 0 -> list(depth);
      // Below it HBase forgets to show rows to a filter, and fails in a filter of ranges.
      case 1 -> Drawn.around("Skip", 1, List.of(draw.chance(0.5) ? ofColumns() : ofCells()),
          parts -> new SkipFilter((Filter) parts.get(0)));
      case 2 -> Drawn.around("WhileMatch", 1, List.of(filter(depth + 1)),
          parts -> new WhileMatchFilter((Filter) parts.get(0)));
      case 3 -> ofRows();
      case 4 -> ofColumns();
      default -> ofCells();
    };
  }

  private Drawn<Filter> list(int depth) {
    List<Drawn<Filter>> parts = new ArrayList<>();
    int count = draw.between(draw.chance(0.05) ? 0 : 1, 3);
    while (parts.size() < count) {
      parts.add(filter(depth + 1));
    }
    FilterList.Operator operator = draw.one(List.of(FilterList.Operator.values()));
    String head = operator == FilterList.Operator.MUST_PASS_ALL ? "All" : "One";
    return Drawn.around(head, 0, parts,
        built -> new FilterList(operator, built.stream().map(Filter.class::cast).toList()));
  }

  CompareOperator operator() {
    return draw.one(OPERATORS);
  }

  /** Of a row, or of the rows so far. */
  private Drawn<Filter> ofRows() {
    int number = draw.between(0, 3);
    String row = draw.bound();
    // HBase reads memory behind a row that is shorter than the prefix, which makes the row "a" come after "a\\x00".
    String prefix = draw.one(List.of("", "a", "aa", "ab", "b", "\\xFF"));
    return switch (draw.weighted(5, 4, 3, 5, isReversed ? 0 : 3, 3, 1)) {
      case 0 -> compared("Row", comparators.ofRow(), RowFilter::new);
      case 1 -> Drawn.leaf("Prefix " + quoted(prefix), parts -> new PrefixFilter(b(prefix)));
      case 2 -> Drawn.leaf("InclusiveStop " + quoted(row), parts -> new InclusiveStopFilter(b(row)));
      case 3 -> Drawn.leaf("Page " + number, parts -> new PageFilter(number));
      case 4 -> fuzzy();
      case 5 -> ranges();
      default -> {
        float chance = draw.chance(0.5) ? -1 : 2;
        yield Drawn.leaf("RandomRow " + chance, parts -> new RandomRowFilter(chance));
      }
    };
  }

  private interface Comparing {
    Filter of(CompareOperator operator, ByteArrayComparable comparator);
  }

  private Drawn<Filter> compared(String name, Drawn<ByteArrayComparable> comparator, Comparing maker) {
    CompareOperator operator = operator();
    return Drawn.of(name + " " + operator, 1, List.of(comparator),
        parts -> maker.of(operator, (ByteArrayComparable) parts.get(0)));
  }

  private Drawn<Filter> fuzzy() {
    List<Drawn<?>> keys = new ArrayList<>();
    int count = draw.between(1, 2);
    while (keys.size() < count) {
      byte[] key = b(draw.one(PREFIXES.subList(1, PREFIXES.size())));
      byte[] mask = new byte[key.length];
      for (int i = 0; i < mask.length; i++) {
        mask[i] = (byte) draw.below(2);
      }
      String text = Bytes.toStringBinary(key) + "/" + Bytes.toStringBinary(mask);
      // The filter changes both.
      keys.add(Drawn.leaf(text, parts -> new Pair<>(key.clone(), mask.clone())));
    }
    return Drawn.of("FuzzyRow", 1, keys, parts -> {
      List<Pair<byte[], byte[]>> pairs = new ArrayList<>();
      parts.forEach(part -> pairs.add(cast(part)));
      return new FuzzyRowFilter(pairs);
    });
  }

  @SuppressWarnings("unchecked")
  private static Pair<byte[], byte[]> cast(Object pair) {
    return (Pair<byte[], byte[]>) pair;
  }

  private Drawn<Filter> ranges() {
    List<Drawn<?>> ranges = new ArrayList<>();
    int count = draw.between(1, 3);
    while (ranges.size() < count) {
      String start = draw.chance(0.1) ? "" : draw.bound();
      String stop = draw.chance(0.1) ? "" : draw.bound();
      boolean includesStart = draw.chance(0.5);
      boolean includesStop = draw.chance(0.5);
      String text = (includesStart ? "[" : "(") + quoted(start) + " to " + quoted(stop) + (includesStop ? "]" : ")");
      ranges.add(Drawn.leaf(text,
          parts -> new MultiRowRangeFilter.RowRange(b(start), includesStart, b(stop), includesStop)));
    }
    return Drawn.of("MultiRowRange", 1, ranges, parts -> {
      List<MultiRowRangeFilter.RowRange> list = new ArrayList<>();
      parts.forEach(part -> list.add((MultiRowRangeFilter.RowRange) part));
      return new MultiRowRangeFilter(list);
    });
  }

  /** Of names of columns, and of their number. */
  private Drawn<Filter> ofColumns() {
    int limit = draw.between(0, 3);
    int offset = draw.between(0, 2);
    String prefix = draw.one(COLUMN_PREFIXES);
    int stepping = steps ? 3 : 0;
    return switch (draw.weighted(3, 3, stepping, stepping, stepping, stepping, stepping, stepping, 1, 1)) {
      case 0 -> compared("Family", comparators.ofFamily(), FamilyFilter::new);
      case 1 -> compared("Qualifier", comparators.ofQualifier(), QualifierFilter::new);
      case 2 -> Drawn.leaf("ColumnPrefix " + quoted(prefix), parts -> new ColumnPrefixFilter(b(prefix)));
      case 3 -> prefixes();
      case 4 -> columnRange();
      case 5 -> Drawn.leaf("ColumnPagination " + limit + " from " + offset,
          parts -> new ColumnPaginationFilter(limit, offset));
      case 6 -> Drawn.leaf("ColumnPagination " + limit + " from " + quoted(prefix),
          parts -> new ColumnPaginationFilter(limit, b(prefix)));
      case 7 -> Drawn.leaf("ColumnCountGet " + limit, parts -> new ColumnCountGetFilter(limit));
      case 8 -> Drawn.leaf("FirstKeyOnly", parts -> new FirstKeyOnlyFilter());
      default -> Drawn.leaf("FirstKeyValueMatchingQualifiers " + quoted(prefix), parts -> {
        TreeSet<byte[]> qualifiers = new TreeSet<>(Bytes.BYTES_COMPARATOR);
        qualifiers.addAll(List.of(b(prefix), b("pq")));
        return new FirstKeyValueMatchingQualifiersFilter(qualifiers);
      });
    };
  }

  private Drawn<Filter> prefixes() {
    List<Drawn<?>> prefixes = new ArrayList<>();
    int count = draw.between(1, 3);
    while (prefixes.size() < count) {
      String prefix = COLUMN_PREFIXES.get((draw.below(2) + 2 * prefixes.size()) % COLUMN_PREFIXES.size());
      prefixes.add(Drawn.leaf(quoted(prefix), parts -> b(prefix)));
    }
    return Drawn.of("MultipleColumnPrefix", 1, prefixes,
        parts -> new MultipleColumnPrefixFilter(parts.toArray(byte[][]::new)));
  }

  private Drawn<Filter> columnRange() {
    String first = draw.chance(0.2) ? null : draw.one(COLUMN_PREFIXES);
    String last = draw.chance(0.2) ? null : draw.one(COLUMN_PREFIXES);
    boolean includesFirst = draw.chance(0.5);
    boolean includesLast = draw.chance(0.5);
    String text = "ColumnRange " + (includesFirst ? "[" : "(") + (first == null ? "null" : quoted(first)) + " to "
        + (last == null ? "null" : quoted(last)) + (includesLast ? "]" : ")");
    return Drawn.leaf(text, parts -> new ColumnRangeFilter(first == null ? null : b(first), includesFirst,
        last == null ? null : b(last), includesLast));
  }

  /** Of values and times. */
  private Drawn<Filter> ofCells() {
    String family = draw.family();
    String qualifier = draw.qualifier();
    CompareOperator operator = operator();
    String column = " " + family + ":" + qualifier;
    int stepping = steps ? 3 : 0;
    return switch (draw.weighted(4, 4, 3, stepping, 4, stepping, 1, 1)) {
      case 0 -> compared("Value", comparators.ofValue(), ValueFilter::new);
      case 1 -> single(false);
      case 2 -> single(true);
      case 3 -> Drawn.of("ColumnValue" + column + " " + operator, 1, List.of(comparators.ofValue()),
          parts -> new ColumnValueFilter(b(family), b(qualifier), operator, (ByteArrayComparable) parts.get(0)));
      case 4 -> dependent(family, qualifier);
      case 5 -> timestamps();
      case 6 -> Drawn.leaf("KeyOnly", parts -> new KeyOnlyFilter());
      default -> Drawn.leaf("KeyOnly with lengths", parts -> new KeyOnlyFilter(true));
    };
  }

  private Drawn<Filter> single(boolean excludes) {
    String family = draw.family();
    String qualifier = draw.qualifier();
    CompareOperator operator = operator();
    boolean filtersMissing = draw.chance(0.5);
    boolean latestOnly = draw.chance(0.6);
    String head = (excludes ? "SingleColumnValueExclude " : "SingleColumnValue ") + family + ":" + qualifier + " "
        + operator + (filtersMissing ? " if missing" : "") + (latestOnly ? "" : " any version");
    return Drawn.of(head, 1, List.of(comparators.ofValue()), parts -> {
      ByteArrayComparable comparator = (ByteArrayComparable) parts.get(0);
      SingleColumnValueFilter filter = excludes
          ? new SingleColumnValueExcludeFilter(b(family), b(qualifier), operator, comparator)
          : new SingleColumnValueFilter(b(family), b(qualifier), operator, comparator);
      filter.setFilterIfMissing(filtersMissing);
      filter.setLatestVersionOnly(latestOnly);
      return filter;
    });
  }

  private Drawn<Filter> dependent(String family, String qualifier) {
    boolean drops = draw.chance(0.4);
    String head = "DependentColumn " + family + ":" + qualifier + (drops ? " dropped" : "");
    if (draw.chance(0.5)) {
      return Drawn.leaf(head, parts -> new DependentColumnFilter(b(family), b(qualifier), drops));
    }
    CompareOperator operator = operator();
    return Drawn.of(head + " " + operator, 1, List.of(comparators.ofValue()),
        parts -> new DependentColumnFilter(b(family), b(qualifier), drops, operator,
            (ByteArrayComparable) parts.get(0)));
  }

  private Drawn<Filter> timestamps() {
    List<Drawn<?>> times = new ArrayList<>();
    int count = draw.between(0, 3);
    while (times.size() < count) {
      long time = draw.time();
      times.add(Drawn.leaf(Draw.time(time), parts -> time));
    }
    // HBase does not count the versions that a hint passes over, and so shows those that are too many.
    boolean hints = draw.chance(0.4) && draw.endsTimes();
    return Drawn.of("Timestamps" + (hints ? " with hints" : ""), 0, times,
        parts -> new TimestampsFilter(parts.stream().map(Long.class::cast).toList(), hints));
  }
}
