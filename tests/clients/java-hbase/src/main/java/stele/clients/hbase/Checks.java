package stele.clients.hbase;

import static stele.clients.hbase.Cells.append;
import static stele.clients.hbase.Cells.b;
import static stele.clients.hbase.Cells.delete;
import static stele.clients.hbase.Cells.get;
import static stele.clients.hbase.Cells.increment;
import static stele.clients.hbase.Cells.put;

import java.util.ArrayList;
import java.util.List;
import org.apache.hadoop.hbase.CompareOperator;
import org.apache.hadoop.hbase.client.CheckAndMutate;
import org.apache.hadoop.hbase.client.CheckAndMutateResult;
import org.apache.hadoop.hbase.client.RowMutations;
import org.apache.hadoop.hbase.client.Table;
import org.apache.hadoop.hbase.filter.ColumnPrefixFilter;
import org.apache.hadoop.hbase.filter.FilterList;
import org.apache.hadoop.hbase.filter.QualifierFilter;
import org.apache.hadoop.hbase.filter.SingleColumnValueFilter;
import org.apache.hadoop.hbase.filter.SubstringComparator;
import org.apache.hadoop.hbase.filter.ValueFilter;
import org.apache.hadoop.hbase.io.TimeRange;

/** Writes that depend on a stored value. */
final class Checks extends Area {
  Checks() {
    super("checks");
    add("operators", this::operators);
    add("operators-old-api", this::operatorsOldApi);
    add("not-exists", this::notExists);
    add("actions", this::actions);
    add("actions-not-matched", this::actionsNotMatched);
    add("row-mutations", this::rowMutations);
    add("row-mutations-results", this::rowMutationsResults);
    add("row-mutations-old-api", this::rowMutationsOldApi);
    add("times", this::times);
    add("filters", this::filters);
    add("many", this::many);
    add("many-same-row", this::manySameRow);
    add("errors", this::errors);
  }

  private static CheckAndMutate.Builder check(String row) {
    return CheckAndMutate.newBuilder(b(row));
  }

  private static CheckAndMutate.Builder equal(String row, String column, String value) {
    return check(row).ifEquals(Cells.family(column), Cells.qualifier(column), b(value));
  }

  /** The row's column is present, empty or absent; the action writes another column. */
  private static Table threeColumns(Case c) throws Exception {
    Table table = c.versions(3, "f");
    table.put(put("r", 1, "f:present=m", "f:empty="));
    return table;
  }

  private void operators(Case c) throws Exception {
    Table table = threeColumns(c);
    for (String column : List.of("present", "empty", "absent")) {
      for (CompareOperator operator : CompareOperator.values()) {
        List<String> answers = new ArrayList<>();
        // With other values the server fails, and the client retries for a while.
        List<String> values = operator == CompareOperator.NO_OP ? List.of("") : List.of("", "a", "m", "mm", "z");
        for (String value : values) {
          CheckAndMutate check =
              check("r").ifMatches(b("f"), b(column), operator, b(value)).build(put("r", 1, "f:o=v"));
          answers.add("'" + value + "'=" + table.checkAndMutate(check).isSuccess());
        }
        c.say(column + "." + operator, answers);
      }
    }
  }

  @SuppressWarnings("deprecation")
  private void operatorsOldApi(Case c) throws Exception {
    Table table = threeColumns(c);
    for (String column : List.of("present", "empty", "absent")) {
      for (CompareOperator operator : List.of(CompareOperator.LESS, CompareOperator.EQUAL, CompareOperator.NOT_EQUAL)) {
        c.say(column + "." + operator, table.checkAndMutate(b("r"), b("f")).qualifier(b(column))
            .ifMatches(operator, b("a")).thenPut(put("r", 1, "f:o=v")));
      }
      c.say(column + ".not-exists",
          table.checkAndMutate(b("r"), b("f")).qualifier(b(column)).ifNotExists().thenPut(put("r", 1, "f:o=w")));
    }
    c.say("delete", table.checkAndMutate(b("r"), b("f")).qualifier(b("present")).ifEquals(b("m"))
        .thenDelete(delete("r").addColumns(b("f"), b("present"))));
    c.say("time", table.checkAndMutate(b("r"), b("f")).qualifier(b("o")).timeRange(TimeRange.at(1)).ifEquals(b("w"))
        .thenPut(put("r", 1, "f:timed=yes")));
    c.get("row", table, get("r"));
  }

  private void notExists(Case c) throws Exception {
    Table table = threeColumns(c);
    for (String column : List.of("present", "empty", "absent")) {
      c.say(column, table.checkAndMutate(
          check("r").ifNotExists(b("f"), b(column)).build(put("r", 2, "f:" + column + "=new"))));
    }
    c.say("absent-again", table.checkAndMutate(
        check("r").ifNotExists(b("f"), b("absent")).build(put("r", 3, "f:absent=newer"))));
    c.say("absent-row", table.checkAndMutate(check("s").ifNotExists(b("f"), b("q")).build(put("s", 1, "f:q=v"))));
    c.scan("rows", table, Cells.scan());
  }

  private void actions(Case c) throws Exception {
    Table table = c.versions(3, "f");
    table.put(put("r", 1, "f:q=v", "f:d=v"));
    c.say("put", table.checkAndMutate(equal("r", "f:q", "v").build(put("r", 2, "f:p=put"))));
    c.say("delete", table.checkAndMutate(equal("r", "f:q", "v").build(delete("r").addColumns(b("f"), b("d"), 5))));
    c.say("increment", table.checkAndMutate(equal("r", "f:q", "v").build(increment("r", 5, "f:n", "f:m"))));
    c.say("append", table.checkAndMutate(equal("r", "f:q", "v").build(append("r", "f:p=+", "f:s=+"))));
    c.say("increment-silent",
        table.checkAndMutate(equal("r", "f:q", "v").build(increment("r", 5, "f:n").setReturnResults(false))));
    c.say("append-silent",
        table.checkAndMutate(equal("r", "f:q", "v").build(append("r", "f:p=+").setReturnResults(false))));
    c.say("itself", table.checkAndMutate(equal("r", "f:q", "v").build(put("r", 2, "f:q=w"))));
    c.say("itself-again", table.checkAndMutate(equal("r", "f:q", "v").build(put("r", 3, "f:q=x"))));
    c.get("row", table, get("r"));
  }

  private void actionsNotMatched(Case c) throws Exception {
    Table table = c.create("f");
    table.put(put("r", 1, "f:q=v"));
    c.say("put", table.checkAndMutate(equal("r", "f:q", "w").build(put("r", 2, "f:p=put"))));
    c.say("delete", table.checkAndMutate(equal("r", "f:q", "w").build(delete("r"))));
    c.say("increment", table.checkAndMutate(equal("r", "f:q", "w").build(increment("r", 5, "f:n"))));
    c.say("append", table.checkAndMutate(equal("r", "f:q", "w").build(append("r", "f:p=+"))));
    c.say("mutations", table.checkAndMutate(
        equal("r", "f:q", "w").build(new RowMutations(b("r")).add(List.of(put("r", 2, "f:p=put"))))));
    c.get("row", table, get("r"));
  }

  private void rowMutations(Case c) throws Exception {
    Table table = c.versions(3, "f", "g");
    table.put(put("r", 1, "f:q=v", "g:old=v"));
    RowMutations mutations = new RowMutations(b("r"));
    mutations.add(put("r", 2, "f:new=v", "g:new=v"));
    mutations.add(delete("r").addColumns(b("g"), b("old"), 5));
    mutations.add(put("r", 3, "f:q=w"));
    c.say("matched", table.checkAndMutate(equal("r", "f:q", "v").build(mutations)));
    c.get("row", table, get("r"));
    c.say("not-matched", table.checkAndMutate(equal("r", "f:q", "v").build(mutations)));
    c.get("row-after", table, get("r").readAllVersions());
  }

  private void rowMutationsResults(Case c) throws Exception {
    Table table = c.create("f");
    table.put(put("r", 1, "f:q=v", "f:gone=v"));
    RowMutations mutations = new RowMutations(b("r"));
    mutations.add(increment("r", 3, "f:n"));
    mutations.add(append("r", "f:a=x"));
    mutations.add(delete("r").addColumns(b("f"), b("gone"), 5));
    mutations.add(increment("r", 4, "f:m").setReturnResults(false));
    c.say("matched", table.checkAndMutate(equal("r", "f:q", "v").build(mutations)));
    c.get("row", table, get("r"));
  }

  @SuppressWarnings("deprecation")
  private void rowMutationsOldApi(Case c) throws Exception {
    Table table = c.create("f");
    table.put(put("r", 1, "f:q=v"));
    RowMutations mutations = new RowMutations(b("r")).add(List.of(put("r", 2, "f:p=v")));
    c.say("matched", table.checkAndMutate(b("r"), b("f")).qualifier(b("q")).ifEquals(b("v")).thenMutate(mutations));
    c.say("not-matched", table.checkAndMutate(b("r"), b("f")).qualifier(b("q")).ifEquals(b("w")).thenMutate(mutations));
    c.get("row", table, get("r"));
  }

  private void times(Case c) throws Exception {
    Table table = c.versions(5, "f");
    table.put(put("r", 10, "f:q=ten"));
    table.put(put("r", 20, "f:q=twenty"));
    c.say("newest", table.checkAndMutate(equal("r", "f:q", "ten").build(put("r", 1, "f:a=v"))));
    c.say("range", table.checkAndMutate(
        equal("r", "f:q", "ten").timeRange(TimeRange.between(5, 15)).build(put("r", 1, "f:b=v"))));
    c.say("range-empty", table.checkAndMutate(
        equal("r", "f:q", "ten").timeRange(TimeRange.between(11, 15)).build(put("r", 1, "f:c=v"))));
    c.say("not-exists-in-range", table.checkAndMutate(
        check("r").ifNotExists(b("f"), b("q")).timeRange(TimeRange.between(11, 15)).build(put("r", 1, "f:d=v"))));
    c.get("row", table, get("r"));
  }

  private void filters(Case c) throws Exception {
    Table table = c.versions(3, "f", "g");
    table.put(put("r", 10, "f:a=1", "f:b=2", "g:c=3"));
    c.say("column-value", table.checkAndMutate(check("r").ifMatches(value("f", "a", CompareOperator.EQUAL, "1"))
        .build(put("r", 1, "f:m1=v"))));
    c.say("column-value-not", table.checkAndMutate(check("r").ifMatches(value("f", "a", CompareOperator.EQUAL, "2"))
        .build(put("r", 1, "f:m2=v"))));
    // The stored value is to be greater than the given one: the other way round than in a check without filter.
    c.say("column-value-greater", table.checkAndMutate(
        check("r").ifMatches(value("f", "b", CompareOperator.GREATER, "1")).build(put("r", 1, "f:m3=v"))));
    c.say("all", table.checkAndMutate(check("r").ifMatches(new FilterList(value("f", "a", CompareOperator.EQUAL, "1"),
        value("g", "c", CompareOperator.EQUAL, "3"))).build(put("r", 1, "f:m4=v"))));
    c.say("all-not", table.checkAndMutate(check("r").ifMatches(new FilterList(
        value("f", "a", CompareOperator.EQUAL, "1"),
        value("g", "c", CompareOperator.EQUAL, "4"))).build(put("r", 1, "f:m5=v"))));
    c.say("one", table.checkAndMutate(check("r").ifMatches(new FilterList(FilterList.Operator.MUST_PASS_ONE,
        value("f", "a", CompareOperator.EQUAL, "9"), value("g", "c", CompareOperator.EQUAL, "3")))
        .build(increment("r", 1, "f:n"))));
    c.say("prefix", table.checkAndMutate(check("r").ifMatches(new ColumnPrefixFilter(b("zz")))
        .build(delete("r"))));
    c.say("qualifier", table.checkAndMutate(check("r")
        .ifMatches(new QualifierFilter(CompareOperator.EQUAL, new SubstringComparator("c")))
        .build(append("r", "f:x=v"))));
    c.say("value-in-time", table.checkAndMutate(check("r")
        .ifMatches(new ValueFilter(CompareOperator.EQUAL, new SubstringComparator("3")))
        .timeRange(TimeRange.between(0, 10)).build(put("r", 1, "f:m6=v"))));
    c.say("absent-row", table.checkAndMutate(check("s").ifMatches(value("f", "a", CompareOperator.EQUAL, "1"))
        .build(put("s", 1, "f:q=v"))));
    c.get("row", table, get("r"));
  }

  private static SingleColumnValueFilter value(String family, String qualifier, CompareOperator operator,
      String value) {
    SingleColumnValueFilter filter = new SingleColumnValueFilter(b(family), b(qualifier), operator, b(value));
    filter.setFilterIfMissing(true);
    return filter;
  }

  private void many(Case c) throws Exception {
    Table table = c.create(Case.described(c.name, 1, "f"), "c");
    for (String row : List.of("a", "b", "c", "d")) {
      table.put(put(row, 1, "f:q=" + row));
    }
    List<CheckAndMutate> checks = List.of(
        equal("a", "f:q", "a").build(put("a", 2, "f:p=v")),
        equal("b", "f:q", "x").build(put("b", 2, "f:p=v")),
        equal("c", "f:q", "c").build(increment("c", 5, "f:n")),
        equal("d", "f:q", "d").build(new RowMutations(b("d")).add(List.of(put("d", 2, "f:p=v"), append("d", "f:s=v")))),
        check("e").ifNotExists(b("f"), b("q")).build(put("e", 2, "f:q=new")));
    for (CheckAndMutateResult result : table.checkAndMutate(checks)) {
      c.say("result", result);
    }
    c.scan("rows", table, Cells.scan());
  }

  private void manySameRow(Case c) throws Exception {
    Table table = c.create("f");
    List<CheckAndMutateResult> results = table.checkAndMutate(List.of(
        check("r").ifNotExists(b("f"), b("q")).build(put("r", 1, "f:q=1")),
        equal("r", "f:q", "1").build(put("r", 2, "f:q=2")),
        equal("r", "f:q", "1").build(put("r", 3, "f:q=3")),
        equal("r", "f:q", "2").build(delete("r").addColumns(b("f"), b("q"), 5))));
    c.say("results", results);
    c.get("row", table, get("r"));
  }

  private void errors(Case c) throws Exception {
    Table table = c.create("f");
    table.put(put("r", 1, "f:q=v", "f:three=abc"));
    c.failsAs("absent-family-checked", () -> table.checkAndMutate(equal("r", "g:q", "v").build(put("r", 2, "f:p=v"))));
    c.failsAs("absent-family-written", () -> table.checkAndMutate(equal("r", "f:q", "v").build(put("r", 2, "g:p=v"))));
    c.failsAs("absent-family-not-matched",
        () -> table.checkAndMutate(equal("r", "f:q", "w").build(put("r", 2, "g:p=v"))));
    c.failsAs("increment-width",
        () -> table.checkAndMutate(equal("r", "f:q", "v").build(increment("r", 2, "f:three"))));
    c.failsAs("list", () -> table.checkAndMutate(List.of(
        equal("r", "f:q", "v").build(put("r", 2, "f:first=v")), equal("r", "f:q", "v").build(put("r", 2, "g:p=v")))));
    c.get("row", table, get("r"));
  }
}
