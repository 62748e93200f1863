package stele.clients.hbase;

import static stele.clients.hbase.Cells.b;
import static stele.clients.hbase.Cells.put;
import static stele.clients.hbase.Cells.scan;

import java.math.BigDecimal;
import java.util.List;
import java.util.regex.Pattern;
import org.apache.hadoop.hbase.CompareOperator;
import org.apache.hadoop.hbase.client.Put;
import org.apache.hadoop.hbase.client.Result;
import org.apache.hadoop.hbase.client.ResultScanner;
import org.apache.hadoop.hbase.client.Table;
import org.apache.hadoop.hbase.filter.BigDecimalComparator;
import org.apache.hadoop.hbase.filter.BinaryComponentComparator;
import org.apache.hadoop.hbase.filter.BinaryPrefixComparator;
import org.apache.hadoop.hbase.filter.BitComparator;
import org.apache.hadoop.hbase.filter.ByteArrayComparable;
import org.apache.hadoop.hbase.filter.Filter;
import org.apache.hadoop.hbase.filter.LongComparator;
import org.apache.hadoop.hbase.filter.NullComparator;
import org.apache.hadoop.hbase.filter.QualifierFilter;
import org.apache.hadoop.hbase.filter.RegexStringComparator;
import org.apache.hadoop.hbase.filter.RowFilter;
import org.apache.hadoop.hbase.filter.SingleColumnValueFilter;
import org.apache.hadoop.hbase.filter.SubstringComparator;
import org.apache.hadoop.hbase.filter.ValueFilter;
import org.apache.hadoop.hbase.util.Bytes;

/** Each comparator other than the plain one, in filters of rows, qualifiers and values. */
final class Comparators extends Area {
  private static final List<CompareOperator> OPERATORS = List.of(CompareOperator.LESS, CompareOperator.LESS_OR_EQUAL,
      CompareOperator.EQUAL, CompareOperator.NOT_EQUAL, CompareOperator.GREATER_OR_EQUAL, CompareOperator.GREATER);

  Comparators() {
    super("comparators");
    add("prefix", c -> values(c, new BinaryPrefixComparator(b("ab")), OPERATORS));
    add("component", this::component);
    add("substring", c -> values(c, new SubstringComparator("BC"),
        List.of(CompareOperator.EQUAL, CompareOperator.NOT_EQUAL)));
    add("null", c -> values(c, new NullComparator(), List.of(CompareOperator.EQUAL, CompareOperator.NOT_EQUAL)));
    add("long", this::longs);
    add("decimal", this::decimals);
    add("bits", this::bits);
    add("regex", this::regex);
    add("regex-joni", this::regexJoni);
    add("regex-bad", this::regexBad);
    add("of-rows", this::ofRows);
    add("single-column", this::singleColumn);
  }

  /** The rows that pass are named; their value is their name. */
  private static String passing(Table table, Filter filter) throws Exception {
    StringBuilder rows = new StringBuilder();
    try (ResultScanner scanner = table.getScanner(scan().setFilter(filter))) {
      for (Result result : scanner) {
        rows.append(rows.isEmpty() ? "" : " ").append(Show.bytes(result.getRow()));
      }
    }
    return rows.toString();
  }

  private static Table texts(Case c) throws Exception {
    Table table = c.create("f");
    for (String text : List.of("a", "ab", "abc", "abd", "b", "bb", "bbc", "BBC", "xbcx", "\\xFFb")) {
      table.put(put(text, 1, "f:q=" + text));
    }
    table.put(put("0", 1, "f:q="));
    return table;
  }

  private static void values(Case c, ByteArrayComparable comparator, List<CompareOperator> operators) throws Exception {
    Table table = texts(c);
    for (CompareOperator operator : operators) {
      c.say(operator.name(), passing(table, new ValueFilter(operator, comparator)));
    }
  }

  /** The comparator reads a part of the value, which must be there. */
  private void component(Case c) throws Exception {
    Table table = c.create("f");
    for (String text : List.of("1ab-", "2aa-", "3bb", "4ab", "5ac")) {
      table.put(put(text, 1, "f:q=" + text));
    }
    for (CompareOperator operator : OPERATORS) {
      c.say(operator.name(), passing(table, new ValueFilter(operator, new BinaryComponentComparator(b("ab"), 1))));
    }
    c.say("row", passing(table, new RowFilter(CompareOperator.EQUAL, new BinaryComponentComparator(b("b"), 2))));
  }

  private void longs(Case c) throws Exception {
    Table table = c.create("f");
    for (long number : new long[] {Long.MIN_VALUE, -5, -1, 0, 1, 5, 300, Long.MAX_VALUE}) {
      table.put(new Put(b("n" + number)).addColumn(b("f"), b("q"), 1, Bytes.toBytes(number)));
    }
    for (CompareOperator operator : OPERATORS) {
      c.say(operator.name(), passing(table, new ValueFilter(operator, new LongComparator(1))));
    }
    c.say("negative", passing(table, new ValueFilter(CompareOperator.LESS, new LongComparator(-1))));
  }

  private void decimals(Case c) throws Exception {
    Table table = c.create("f");
    for (String number : List.of("-10.5", "-1", "0", "0.10", "0.1", "1E+3", "999.99", "1000.00")) {
      table.put(new Put(b("n" + number)).addColumn(b("f"), b("q"), 1, Bytes.toBytes(new BigDecimal(number))));
    }
    for (CompareOperator operator : OPERATORS) {
      c.say(operator.name(),
          passing(table, new ValueFilter(operator, new BigDecimalComparator(new BigDecimal("0.1")))));
    }
    c.say("thousand", passing(table,
        new ValueFilter(CompareOperator.EQUAL, new BigDecimalComparator(new BigDecimal("1000")))));
  }

  private void bits(Case c) throws Exception {
    Table table = c.create("f");
    for (String value : List.of("\\x00\\x00", "\\x01\\x00", "\\x03\\x0F", "\\xFF\\xFF", "\\x03", "\\x03\\x0F\\x00")) {
      table.put(put(value, 1, "f:q=" + value));
    }
    for (BitComparator.BitwiseOp operation : BitComparator.BitwiseOp.values()) {
      BitComparator comparator = new BitComparator(b("\\x03\\x0F"), operation);
      c.say(operation + ".EQUAL", passing(table, new ValueFilter(CompareOperator.EQUAL, comparator)));
      c.say(operation + ".NOT_EQUAL", passing(table, new ValueFilter(CompareOperator.NOT_EQUAL, comparator)));
    }
  }

  private void regex(Case c) throws Exception {
    Table table = texts(c);
    for (String expression : List.of("^ab", "b$", "^a.?$", "bc", "[a-b]{2}c", "(a|b)+", "^$", "\\w+x", "^(?!a)b",
        "(b)\\1")) {
      c.say(expression.replace(':', ' '),
          passing(table, new ValueFilter(CompareOperator.EQUAL, new RegexStringComparator(expression))));
    }
    c.say("not", passing(table, new ValueFilter(CompareOperator.NOT_EQUAL, new RegexStringComparator("b"))));
    c.say("insensitive", passing(table,
        new ValueFilter(CompareOperator.EQUAL, new RegexStringComparator("^bbc$", Pattern.CASE_INSENSITIVE))));
    c.say("inline-flag", passing(table,
        new ValueFilter(CompareOperator.EQUAL, new RegexStringComparator("(?i)^bbc$"))));
  }

  private void regexJoni(Case c) throws Exception {
    Table table = texts(c);
    for (String expression : List.of("^ab", "bc", "^[ab]+$")) {
      c.say(expression, passing(table, new ValueFilter(CompareOperator.EQUAL,
          new RegexStringComparator(expression, RegexStringComparator.EngineType.JONI))));
    }
    c.say("insensitive", passing(table, new ValueFilter(CompareOperator.EQUAL,
        new RegexStringComparator("^bbc$", Pattern.CASE_INSENSITIVE, RegexStringComparator.EngineType.JONI))));
  }

  /** The client reads the expression first, and refuses it. */
  private void regexBad(Case c) throws Exception {
    Table table = texts(c);
    c.failsAs("unclosed",
        () -> passing(table, new ValueFilter(CompareOperator.EQUAL, new RegexStringComparator("(a"))));
  }

  private void ofRows(Case c) throws Exception {
    Table table = texts(c);
    c.say("row-prefix", passing(table, new RowFilter(CompareOperator.EQUAL, new BinaryPrefixComparator(b("b")))));
    c.say("row-substring", passing(table, new RowFilter(CompareOperator.EQUAL, new SubstringComparator("bc"))));
    c.say("row-regex", passing(table, new RowFilter(CompareOperator.EQUAL, new RegexStringComparator("^.b"))));
    c.say("qualifier-regex",
        passing(table, new QualifierFilter(CompareOperator.NOT_EQUAL, new RegexStringComparator("q"))));
  }

  private void singleColumn(Case c) throws Exception {
    Table table = texts(c);
    for (ByteArrayComparable comparator : List.of(new SubstringComparator("bc"), new RegexStringComparator("^b"),
        new BinaryPrefixComparator(b("ab")), new NullComparator())) {
      c.say(comparator.getClass().getSimpleName(), passing(table,
          new SingleColumnValueFilter(b("f"), b("q"), CompareOperator.EQUAL, comparator)));
    }
  }
}
