package stele.clients.hbase;

import static stele.clients.hbase.Cells.b;
import static stele.clients.hbase.Cells.put;
import static stele.clients.hbase.Cells.scan;

import java.util.ArrayList;
import java.util.List;
import java.util.NavigableSet;
import java.util.TreeSet;
import org.apache.hadoop.hbase.CompareOperator;
import org.apache.hadoop.hbase.client.Scan;
import org.apache.hadoop.hbase.client.Table;
import org.apache.hadoop.hbase.filter.BinaryComparator;
import org.apache.hadoop.hbase.filter.ColumnCountGetFilter;
import org.apache.hadoop.hbase.filter.ColumnPaginationFilter;
import org.apache.hadoop.hbase.filter.ColumnPrefixFilter;
import org.apache.hadoop.hbase.filter.ColumnRangeFilter;
import org.apache.hadoop.hbase.filter.ColumnValueFilter;
import org.apache.hadoop.hbase.filter.DependentColumnFilter;
import org.apache.hadoop.hbase.filter.FamilyFilter;
import org.apache.hadoop.hbase.filter.Filter;
import org.apache.hadoop.hbase.filter.FilterBase;
import org.apache.hadoop.hbase.filter.FilterList;
import org.apache.hadoop.hbase.filter.FirstKeyOnlyFilter;
import org.apache.hadoop.hbase.filter.FirstKeyValueMatchingQualifiersFilter;
import org.apache.hadoop.hbase.filter.FuzzyRowFilter;
import org.apache.hadoop.hbase.filter.InclusiveStopFilter;
import org.apache.hadoop.hbase.filter.KeyOnlyFilter;
import org.apache.hadoop.hbase.filter.MultiRowRangeFilter;
import org.apache.hadoop.hbase.filter.MultipleColumnPrefixFilter;
import org.apache.hadoop.hbase.filter.PageFilter;
import org.apache.hadoop.hbase.filter.ParseFilter;
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

/** Each filter, with a comparator of bytes where it needs one. */
final class Filters extends Area {
  Filters() {
    super("filters");
    add("rows", this::rows);
    add("row-ranges", this::rowRanges);
    add("fuzzy-rows", this::fuzzyRows);
    add("families", this::families);
    add("qualifiers", this::qualifiers);
    add("column-counts", this::columnCounts);
    add("values", this::values);
    add("single-column", this::singleColumn);
    add("column-value", this::columnValue);
    add("dependent-column", this::dependentColumn);
    add("times", this::times);
    add("keys", this::keys);
    add("pages", this::pages);
    add("wrappers", this::wrappers);
    add("lists", this::lists);
    add("random", this::random);
    add("reversed", this::reversed);
    add("with-batch", this::withBatch);
    add("with-columns", this::withColumns);
    add("in-get", this::inGet);
    add("parsed", this::parsed);
    add("unknown", this::unknown);
  }

  /** Four rows in two regions, two families; values differ in length and sign of their first byte. */
  static Table rowsToFilter(Case c) throws Exception {
    Table table = c.create(Case.described(c.name, 3, "a", "b"), "r3");
    table.put(put("r1", 10, "a:apple=1", "a:apricot=22", "a:banana=333", "b:x=1"));
    table.put(put("r2", 20, "a:apple=5", "a:cherry=", "b:x=2", "b:y=5"));
    table.put(put("r3", 30, "a:banana=7", "b:y=\\xFF", "b:z=1"));
    table.put(put("s4", 40, "b:x=4", "b:y=4", "b:z=4"));
    table.put(put("r1", 11, "a:apple=9"));
    return table;
  }

  private static BinaryComparator is(String value) {
    return new BinaryComparator(b(value));
  }

  private static void filter(Case c, String step, Table table, Filter filter) throws Exception {
    c.scan(step, table, scan().setFilter(filter));
  }

  private void rows(Case c) throws Exception {
    Table table = rowsToFilter(c);
    for (CompareOperator operator : CompareOperator.values()) {
      if (operator != CompareOperator.NO_OP) {
        c.scan(operator.name(), table, scan("b").setFilter(new RowFilter(operator, is("r2"))));
      }
    }
    c.failsAs("no-op-is-allowed",
        () -> c.scan("NO_OP", table, scan("b").setFilter(new RowFilter(CompareOperator.NO_OP, is("r2")))));
    filter(c, "prefix", table, new PrefixFilter(b("r")));
    filter(c, "prefix-later", table, new PrefixFilter(b("s")));
    filter(c, "prefix-none", table, new PrefixFilter(b("q")));
    filter(c, "inclusive-stop", table, new InclusiveStopFilter(b("r2")));
    filter(c, "inclusive-stop-between", table, new InclusiveStopFilter(b("r25")));
  }

  /** The filter sorts the list that it is given. */
  private static MultiRowRangeFilter ranges(MultiRowRangeFilter.RowRange... ranges) {
    return new MultiRowRangeFilter(new ArrayList<>(List.of(ranges)));
  }

  private void rowRanges(Case c) throws Exception {
    Table table = rowsToFilter(c);
    filter(c, "two", table, ranges(
        new MultiRowRangeFilter.RowRange(b("r1"), true, b("r2"), false),
        new MultiRowRangeFilter.RowRange(b("r3"), false, b("s4"), true)));
    filter(c, "touching", table, ranges(
        new MultiRowRangeFilter.RowRange(b("r1"), false, b("r2"), true),
        new MultiRowRangeFilter.RowRange(b("r2"), false, b("r3"), true)));
    filter(c, "open", table, ranges(
        new MultiRowRangeFilter.RowRange(b(""), true, b("r1"), true),
        new MultiRowRangeFilter.RowRange(b("s"), true, b(""), false)));
    filter(c, "prefixes", table, new MultiRowRangeFilter(new byte[][] {b("r2"), b("s")}));
    filter(c, "none", table, ranges(new MultiRowRangeFilter.RowRange(b("x"), true, b("y"), true)));
    c.scan("reversed", table, scan("b").setReversed(true).setFilter(ranges(
        new MultiRowRangeFilter.RowRange(b("r1"), true, b("r2"), true),
        new MultiRowRangeFilter.RowRange(b("s4"), true, b("s5"), true))));
  }

  private void fuzzyRows(Case c) throws Exception {
    Table table = c.create("f");
    for (String row : List.of("2023_01_a", "2023_02_a", "2024_01_b", "2024_02_a", "2024_02_b", "2025_1",
        "2024_02_a_more")) {
      table.put(put(row, 1, "f:q=v"));
    }
    // 0: the byte must be that; 1: any byte.
    filter(c, "month", table,
        new FuzzyRowFilter(List.of(new Pair<>(b("0000_02_"), new byte[] {1, 1, 1, 1, 0, 0, 0, 0}))));
    filter(c, "year-and-letter", table,
        new FuzzyRowFilter(List.of(new Pair<>(b("2024_00_a"), new byte[] {0, 0, 0, 0, 0, 1, 1, 0, 0}))));
    filter(c, "two", table, new FuzzyRowFilter(List.of(
        new Pair<>(b("0000_01"), new byte[] {1, 1, 1, 1, 0, 0, 0}),
        new Pair<>(b("2025"), new byte[] {0, 0, 0, 0}))));
    filter(c, "none", table, new FuzzyRowFilter(List.of(new Pair<>(b("0000_09"), new byte[] {1, 1, 1, 1, 0, 0, 0}))));
    c.scan("reversed", table, scan().setReversed(true).setFilter(
        new FuzzyRowFilter(List.of(new Pair<>(b("0000_02_"), new byte[] {1, 1, 1, 1, 0, 0, 0, 0})))));
  }

  private void families(Case c) throws Exception {
    Table table = rowsToFilter(c);
    for (CompareOperator operator : List.of(CompareOperator.EQUAL, CompareOperator.NOT_EQUAL,
        CompareOperator.GREATER)) {
      filter(c, operator.name(), table, new FamilyFilter(operator, is("a")));
    }
  }

  private void qualifiers(Case c) throws Exception {
    Table table = rowsToFilter(c);
    for (CompareOperator operator : List.of(CompareOperator.EQUAL, CompareOperator.LESS,
        CompareOperator.GREATER_OR_EQUAL)) {
      filter(c, operator.name(), table, new QualifierFilter(operator, is("banana")));
    }
    filter(c, "prefix", table, new ColumnPrefixFilter(b("ap")));
    filter(c, "prefixes", table, new MultipleColumnPrefixFilter(new byte[][] {b("z"), b("b"), b("app")}));
    filter(c, "range", table, new ColumnRangeFilter(b("apricot"), true, b("x"), true));
    filter(c, "range-exclusive", table, new ColumnRangeFilter(b("apricot"), false, b("x"), false));
    filter(c, "range-open", table, new ColumnRangeFilter(null, true, b("b"), false));
    filter(c, "range-to-the-end", table, new ColumnRangeFilter(b("y"), true, null, false));
  }

  private void columnCounts(Case c) throws Exception {
    Table table = rowsToFilter(c);
    filter(c, "pagination", table, new ColumnPaginationFilter(2, 1));
    filter(c, "pagination-beyond", table, new ColumnPaginationFilter(2, 9));
    filter(c, "pagination-from-column", table, new ColumnPaginationFilter(2, b("b")));
    c.say("count-get", table.get(Cells.get("r1").setFilter(new ColumnCountGetFilter(2))));
    filter(c, "count-scan", table, new ColumnCountGetFilter(2));
  }

  private void values(Case c) throws Exception {
    Table table = rowsToFilter(c);
    for (CompareOperator operator : CompareOperator.values()) {
      if (operator != CompareOperator.NO_OP) {
        filter(c, operator.name(), table, new ValueFilter(operator, is("4")));
      }
    }
    c.scan("versions", table, scan().readAllVersions().setFilter(new ValueFilter(CompareOperator.EQUAL, is("1"))));
    c.scan("newest-only", table, scan("a:apple").setFilter(new ValueFilter(CompareOperator.EQUAL, is("1"))));
  }

  private static SingleColumnValueFilter single(String column, CompareOperator operator, String value) {
    return new SingleColumnValueFilter(Cells.family(column), Cells.qualifier(column), operator, b(value));
  }

  private void singleColumn(Case c) throws Exception {
    Table table = rowsToFilter(c);
    filter(c, "equal", table, single("a:apple", CompareOperator.EQUAL, "5"));
    SingleColumnValueFilter missing = single("a:apple", CompareOperator.EQUAL, "5");
    missing.setFilterIfMissing(true);
    filter(c, "equal-if-missing", table, missing);
    filter(c, "less", table, single("b:y", CompareOperator.LESS, "5"));
    filter(c, "empty-value", table, single("a:cherry", CompareOperator.EQUAL, ""));
    SingleColumnValueFilter versions = single("a:apple", CompareOperator.EQUAL, "1");
    versions.setFilterIfMissing(true);
    c.scan("latest-version-only", table, scan().readAllVersions().setFilter(versions));
    SingleColumnValueFilter any = single("a:apple", CompareOperator.EQUAL, "1");
    any.setFilterIfMissing(true);
    any.setLatestVersionOnly(false);
    c.scan("any-version", table, scan().readAllVersions().setFilter(any));
    SingleColumnValueExcludeFilter exclude =
        new SingleColumnValueExcludeFilter(b("b"), b("x"), CompareOperator.GREATER, b("1"));
    exclude.setFilterIfMissing(true);
    filter(c, "exclude", table, exclude);
    c.scan("column-not-read", table, scan("a").setFilter(single("b:x", CompareOperator.EQUAL, "2")));
  }

  private void columnValue(Case c) throws Exception {
    Table table = rowsToFilter(c);
    filter(c, "equal", table, new ColumnValueFilter(b("b"), b("x"), CompareOperator.EQUAL, b("2")));
    filter(c, "greater", table, new ColumnValueFilter(b("b"), b("x"), CompareOperator.GREATER, b("1")));
    filter(c, "absent", table, new ColumnValueFilter(b("b"), b("none"), CompareOperator.EQUAL, b("2")));
  }

  private void dependentColumn(Case c) throws Exception {
    Table table = rowsToFilter(c);
    filter(c, "same-time", table, new DependentColumnFilter(b("a"), b("banana")));
    filter(c, "drop", table, new DependentColumnFilter(b("a"), b("banana"), true));
    filter(c, "value", table, new DependentColumnFilter(b("b"), b("x"), false, CompareOperator.EQUAL, is("2")));
    c.scan("versions", table, scan().readAllVersions().setFilter(new DependentColumnFilter(b("a"), b("apple"))));
  }

  private void times(Case c) throws Exception {
    Table table = rowsToFilter(c);
    filter(c, "two", table, new TimestampsFilter(List.of(10L, 30L)));
    c.scan("versions", table, scan().readAllVersions().setFilter(new TimestampsFilter(List.of(10L, 11L))));
    filter(c, "hint", table, new TimestampsFilter(List.of(10L, 30L), true));
    filter(c, "none", table, new TimestampsFilter(List.of()));
  }

  private void keys(Case c) throws Exception {
    Table table = rowsToFilter(c);
    filter(c, "key-only", table, new KeyOnlyFilter());
    filter(c, "key-only-with-length", table, new KeyOnlyFilter(true));
    filter(c, "first-key", table, new FirstKeyOnlyFilter());
    filter(c, "first-key-and-key-only", table, new FilterList(new FirstKeyOnlyFilter(), new KeyOnlyFilter()));
    NavigableSet<byte[]> qualifiers = new TreeSet<>(Bytes.BYTES_COMPARATOR);
    qualifiers.addAll(List.of(b("apricot"), b("y")));
    filter(c, "until-qualifiers", table, new FirstKeyValueMatchingQualifiersFilter(qualifiers));
  }

  /** A page is counted in each region, so that a scan of two regions may find more rows. */
  private void pages(Case c) throws Exception {
    Table table = rowsToFilter(c);
    filter(c, "one", table, new PageFilter(1));
    filter(c, "two", table, new PageFilter(2));
    filter(c, "all", table, new PageFilter(100));
    c.scan("with-limit", table, scan().setFilter(new PageFilter(2)).setLimit(2));
    c.scan("with-caching", table, scan().setFilter(new PageFilter(2)).setCaching(1));
  }

  private void wrappers(Case c) throws Exception {
    Table table = rowsToFilter(c);
    filter(c, "skip", table, new SkipFilter(new ValueFilter(CompareOperator.NOT_EQUAL, is("5"))));
    filter(c, "skip-qualifier", table, new SkipFilter(new QualifierFilter(CompareOperator.NOT_EQUAL, is("banana"))));
    filter(c, "while-value", table, new WhileMatchFilter(new ValueFilter(CompareOperator.NOT_EQUAL, is("5"))));
    filter(c, "while-row", table, new WhileMatchFilter(new RowFilter(CompareOperator.NOT_EQUAL, is("r2"))));
    filter(c, "while-prefix", table, new WhileMatchFilter(new PrefixFilter(b("r"))));
  }

  private void lists(Case c) throws Exception {
    Table table = rowsToFilter(c);
    Filter fruit = new ColumnPrefixFilter(b("ap"));
    Filter five = new ValueFilter(CompareOperator.EQUAL, is("5"));
    Filter row = new RowFilter(CompareOperator.EQUAL, is("r1"));
    filter(c, "all", table, new FilterList(fruit, five));
    filter(c, "one", table, new FilterList(FilterList.Operator.MUST_PASS_ONE, fruit, five));
    filter(c, "one-row-or-value", table, new FilterList(FilterList.Operator.MUST_PASS_ONE, row, five));
    filter(c, "nested", table, new FilterList(FilterList.Operator.MUST_PASS_ONE, new FilterList(row, fruit),
        new FilterList(FilterList.Operator.MUST_PASS_ALL, five, new FamilyFilter(CompareOperator.EQUAL, is("b")))));
    filter(c, "page-or-value", table,
        new FilterList(FilterList.Operator.MUST_PASS_ONE, new PageFilter(1),
            new ValueFilter(CompareOperator.EQUAL, is("4"))));
    filter(c, "column-then-page", table, new FilterList(single("b:y", CompareOperator.EQUAL, "5"), new PageFilter(1)));
    filter(c, "hints-all", table, new FilterList(new ColumnRangeFilter(b("apricot"), true, null, true),
        new ColumnPrefixFilter(b("ban"))));
    filter(c, "hints-one", table, new FilterList(FilterList.Operator.MUST_PASS_ONE, new ColumnPrefixFilter(b("ch")),
        new ColumnPrefixFilter(b("z"))));
    filter(c, "empty", table, new FilterList());
    filter(c, "empty-one", table, new FilterList(FilterList.Operator.MUST_PASS_ONE));
  }

  private void random(Case c) throws Exception {
    Table table = rowsToFilter(c);
    filter(c, "never", table, new RandomRowFilter(-1));
    c.scan("always", table, scan("b:x").setFilter(new RandomRowFilter(2)));
  }

  private void reversed(Case c) throws Exception {
    Table table = rowsToFilter(c);
    c.scan("row", table, scan("b").setReversed(true).setFilter(new RowFilter(CompareOperator.LESS, is("r3"))));
    c.scan("prefix", table, scan("b").setReversed(true).setFilter(new PrefixFilter(b("r"))));
    c.scan("page", table, scan("b").setReversed(true).setFilter(new PageFilter(1)));
    c.scan("value", table, scan().setReversed(true).setFilter(new ValueFilter(CompareOperator.EQUAL, is("1"))));
    c.scan("column-prefix", table, scan().setReversed(true).setFilter(new ColumnPrefixFilter(b("ap"))));
    c.scan("stop", table, scan("b").setReversed(true).setFilter(new InclusiveStopFilter(b("r2"))));
  }

  private void withBatch(Case c) throws Exception {
    Table table = rowsToFilter(c);
    c.scan("prefix", table, scan().setBatch(2).setFilter(new PrefixFilter(b("r"))));
    c.scan("value", table, scan().setBatch(2).setFilter(new ValueFilter(CompareOperator.NOT_EQUAL, is("1"))));
    c.scan("size", table, scan().setMaxResultSize(1).setFilter(new ValueFilter(CompareOperator.NOT_EQUAL, is("1"))));
    c.scan("size-whole-row", table, scan().setMaxResultSize(1).setFilter(single("b:y", CompareOperator.EQUAL, "5")));
    c.failsAs("whole-row", () -> new Scan().setBatch(2).setFilter(single("b:y", CompareOperator.EQUAL, "5")));
  }

  private void withColumns(Case c) throws Exception {
    Table table = rowsToFilter(c);
    c.scan("column", table, scan("a:apple", "b:x").setFilter(new ColumnPrefixFilter(b("a"))));
    c.scan("versions", table, scan("a").readAllVersions().setFilter(new FirstKeyOnlyFilter()));
    c.scan("versions-pagination", table, scan("a").readAllVersions().setFilter(new ColumnPaginationFilter(2, 0)));
    c.scan("store-limit", table, scan().setMaxResultsPerColumnFamily(1).setFilter(new ColumnPrefixFilter(b("b"))));
    c.scan("time-range", table, scan().setTimeRange(0, 11).setFilter(new ValueFilter(CompareOperator.EQUAL, is("1"))));
  }

  private void inGet(Case c) throws Exception {
    Table table = rowsToFilter(c);
    c.get("prefix", table, Cells.get("r1").setFilter(new ColumnPrefixFilter(b("ap"))));
    c.get("row-not", table, Cells.get("r1").setFilter(new RowFilter(CompareOperator.EQUAL, is("r2"))));
    c.get("single", table, Cells.get("r2").setFilter(single("b:y", CompareOperator.EQUAL, "5")));
    c.get("single-not", table, Cells.get("r2").setFilter(single("b:y", CompareOperator.EQUAL, "6")));
    c.say("exists", table.exists(Cells.get("r1").setFilter(new ValueFilter(CompareOperator.EQUAL, is("333")))));
    c.say("exists-not", table.exists(Cells.get("r1").setFilter(new ValueFilter(CompareOperator.EQUAL, is("4444")))));
    c.get("while", table,
        Cells.get("r1").setFilter(new WhileMatchFilter(new ValueFilter(CompareOperator.NOT_EQUAL, is("22")))));
  }

  /** The text form of filters is read by the client. */
  private void parsed(Case c) throws Exception {
    Table table = rowsToFilter(c);
    for (String text : List.of("PrefixFilter('r') AND ValueFilter(>=, 'binary:5')",
        "KeyOnlyFilter() AND ColumnPrefixFilter('ap')",
        "SKIP ValueFilter(!=, 'binary:5')",
        "(RowFilter(=, 'substring:4') OR ColumnRangeFilter('x', true, 'y', false))")) {
      filter(c, text.replaceAll("[^A-Za-z]+", "-"), table, new ParseFilter().parseFilterString(b(text)));
    }
  }

  /** A class that no server has. */
  static final class OfThisProgram extends FilterBase {
    @Override
    public ReturnCode filterCell(org.apache.hadoop.hbase.Cell cell) {
      return ReturnCode.INCLUDE;
    }

    @Override
    public byte[] toByteArray() {
      return new byte[0];
    }
  }

  private void unknown(Case c) throws Exception {
    Table table = rowsToFilter(c);
    c.failsAs("scan", () -> filter(c, "rows", table, new OfThisProgram()));
    c.failsAs("get", () -> table.get(Cells.get("r1").setFilter(new OfThisProgram())));
    c.get("afterwards", table, Cells.get("s4"));
  }
}
