package suite

import (
	"strings"
	"testing"
	"time"

	"cloud.google.com/go/bigtable"
	"cloud.google.com/go/bigtable/apiv2/bigtablepb"
	"google.golang.org/grpc/codes"
)

// filterTable holds three small rows that every filter case reads.
func filterTable(t *testing.T) (string, *bigtable.Table) {
	t.Helper()
	name, table := newTable(t, "f", "g")
	set(t, table, "a", "f:q1@3000=v3", "f:q1@2000=v2", "f:q1@1000=v1", "f:q2@1000=x", "g:q1@2000=gv")
	set(t, table, "b", "f:q1@1000=bv", "g:q9@5000=")
	set(t, table, "c", "g:q1@1000=c-g")
	return name, table
}

func TestFilters(t *testing.T) {
	t.Parallel()
	_, table := filterTable(t)
	all := []string{
		"a f:q1@3000=v3 f:q1@2000=v2 f:q1@1000=v1 f:q2@1000=x g:q1@2000=gv",
		"b f:q1@1000=bv g:q9@5000=",
		"c g:q1@1000=c-g",
	}
	newest := bigtable.LatestNFilter(1)
	family := bigtable.FamilyFilter
	cases := []struct {
		name   string
		filter bigtable.Filter
		want   []string
	}{
		{"pass all", bigtable.PassAllFilter(), all},
		{"block all", bigtable.BlockAllFilter(), nil},
		{"row key regex", bigtable.RowKeyFilter("[bc]"), all[1:]},
		{"row key regex is anchored", bigtable.RowKeyFilter("^$|x"), nil},
		{"family regex", family("g"), []string{"a g:q1@2000=gv", "b g:q9@5000=", "c g:q1@1000=c-g"}},
		{"family alternation", family("f|g"), all},
		{"column regex", bigtable.ColumnFilter("q[29]"), []string{"a f:q2@1000=x", "b g:q9@5000="}},
		{"value regex", bigtable.ValueFilter("v[12]"), []string{"a f:q1@2000=v2 f:q1@1000=v1"}},
		{"value regex matches empty", bigtable.ValueFilter("|zz"), []string{"b g:q9@5000="}},
		{"column range", bigtable.ColumnRangeFilter("f", "q1", "q2"),
			[]string{"a f:q1@3000=v3 f:q1@2000=v2 f:q1@1000=v1", "b f:q1@1000=bv"}},
		{"column range, open", bigtable.ColumnRangeFilter("g", "q2", ""), []string{"b g:q9@5000="}},
		{"value range", bigtable.ValueRangeFilter([]byte("v2"), []byte("v9")),
			[]string{"a f:q1@3000=v3 f:q1@2000=v2"}},
		{"timestamp range", bigtable.TimestampRangeFilterMicros(2000, 5000),
			[]string{"a f:q1@3000=v3 f:q1@2000=v2 g:q1@2000=gv"}},
		{"timestamp range, open", bigtable.TimestampRangeFilterMicros(3000, 0),
			[]string{"a f:q1@3000=v3", "b g:q9@5000="}},
		{"latest n", bigtable.LatestNFilter(2),
			[]string{"a f:q1@3000=v3 f:q1@2000=v2 f:q2@1000=x g:q1@2000=gv", all[1], all[2]}},
		{"strip value", bigtable.ChainFilters(bigtable.RowKeyFilter("c"), bigtable.StripValueFilter()),
			[]string{"c g:q1@1000="}},
		{"label", bigtable.ChainFilters(bigtable.RowKeyFilter("c"), bigtable.LabelFilter("l-1")),
			[]string{"c g:q1@1000=c-g[l-1]"}},
		{"label survives strip", bigtable.ChainFilters(
			bigtable.RowKeyFilter("c"), bigtable.LabelFilter("l"), bigtable.StripValueFilter()),
			[]string{"c g:q1@1000=[l]"}},
		{"row limit", bigtable.ChainFilters(family("f"), bigtable.CellsPerRowLimitFilter(2)),
			[]string{"a f:q1@3000=v3 f:q1@2000=v2", "b f:q1@1000=bv"}},
		{"row offset crosses columns", bigtable.ChainFilters(family("f"), bigtable.CellsPerRowOffsetFilter(2)),
			[]string{"a f:q1@1000=v1 f:q2@1000=x"}},
		{"chain order matters", bigtable.ChainFilters(family("f"), bigtable.ValueFilter("v1"), newest),
			[]string{"a f:q1@1000=v1"}},
		{"chain order matters, reversed", bigtable.ChainFilters(family("f"), newest, bigtable.ValueFilter("v1")), nil},
		{"interleave keeps duplicates", bigtable.ChainFilters(bigtable.RowKeyFilter("c"),
			bigtable.InterleaveFilters(bigtable.PassAllFilter(), bigtable.PassAllFilter())),
			[]string{"c g:q1@1000=c-g g:q1@1000=c-g"}},
		{"interleave is sorted", bigtable.ChainFilters(bigtable.RowKeyFilter("a"), family("f"),
			bigtable.InterleaveFilters(bigtable.ColumnFilter("q2"), bigtable.ChainFilters(bigtable.ColumnFilter("q1"), newest))),
			[]string{"a f:q1@3000=v3 f:q2@1000=x"}},
		{"limits count copies", bigtable.ChainFilters(bigtable.RowKeyFilter("c"),
			bigtable.InterleaveFilters(bigtable.PassAllFilter(), bigtable.PassAllFilter()), bigtable.LatestNFilter(1)),
			[]string{"c g:q1@1000=c-g"}},
		{"condition", bigtable.ConditionFilter(bigtable.ColumnFilter("q2"), family("g"), bigtable.StripValueFilter()),
			[]string{"a g:q1@2000=gv", "b f:q1@1000= g:q9@5000=", "c g:q1@1000="}},
		{"condition without branch", bigtable.ConditionFilter(bigtable.ColumnFilter("q2"), family("g"), nil),
			[]string{"a g:q1@2000=gv"}},
		{"condition inside a chain", bigtable.ChainFilters(family("g"),
			bigtable.ConditionFilter(bigtable.ValueFilter("gv"), bigtable.PassAllFilter(), bigtable.BlockAllFilter())),
			[]string{"a g:q1@2000=gv"}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			wantLines(t, readAll(t, table, bigtable.RowFilter(c.filter)), c.want...)
		})
	}
}

func TestTimestampRangeFilterTakesTimes(t *testing.T) {
	t.Parallel()
	_, table := newTable(t, "f")
	base := time.UnixMilli(1_700_000_000_000)
	mutation := bigtable.NewMutation()
	for i := range 3 {
		mutation.Set("f", "q", bigtable.Time(base.Add(time.Duration(i)*time.Second)), []byte{byte('0' + i)})
	}
	apply(t, table, "r", mutation)
	filter := bigtable.TimestampRangeFilter(base.Add(time.Second), base.Add(2*time.Second))
	wantLines(t, readAll(t, table, bigtable.RowFilter(filter)), "r f:q@1700000001000000=1")
}

// Regular expressions see bytes: a literal of two bytes is two characters, `.` is any byte but a newline.
func TestRegexIsOverBytes(t *testing.T) {
	t.Parallel()
	_, table := newTable(t, "f")
	set(t, table, "r", "f:a§b@0=1", "f:a\xffb@0=2", "f:a\nb@0=3", "f:@0=4")
	cases := []struct{ name, pattern, want string }{
		{"literal utf-8", "a§b", "r f:a§b@0=1"},
		{"dot is one byte", "a.b", "r f:a\xffb@0=2"},
		{"any two bytes", `a\C{2}b`, "r f:a§b@0=1"},
		{"any byte includes newline", `a\Cb`, "r f:a\nb@0=3 f:a\xffb@0=2"},
		{"hex escape", `a\xffb`, "r f:a\xffb@0=2"},
		{"not anchored inside", `.*\n.*`, "r f:a\nb@0=3"},
		{"empty qualifier", `|zzz`, "r f:@0=4"},
		{"quoted", `\Qa§b\E`, "r f:a§b@0=1"},
		{"class", `a[\x80-\xff]+b`, "r f:a§b@0=1 f:a\xffb@0=2"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			wantLines(t, readAll(t, table, bigtable.RowFilter(bigtable.ColumnFilter(c.pattern))), c.want)
		})
	}
}

func TestRowSample(t *testing.T) {
	t.Parallel()
	_, table := newTable(t, "f")
	const rows = 2000
	bulkRows(t, table, rows)
	got := len(readAll(t, table, bigtable.RowFilter(bigtable.RowSampleFilter(0.5))))
	// Binomial with deviation 22; ten deviations either way.
	if got < rows/2-220 || got > rows/2+220 {
		t.Errorf("a sample of one half kept %d of %d rows", got, rows)
	}
}

func rowFilter(kind any) *bigtablepb.RowFilter {
	filter := &bigtablepb.RowFilter{}
	switch kind := kind.(type) {
	case *bigtablepb.RowFilter_Chain_:
		filter.Filter = kind
	case *bigtablepb.RowFilter_Interleave_:
		filter.Filter = kind
	case *bigtablepb.RowFilter_Condition_:
		filter.Filter = kind
	}
	return filter
}

func chainOf(filters ...*bigtablepb.RowFilter) *bigtablepb.RowFilter {
	return rowFilter(&bigtablepb.RowFilter_Chain_{Chain: &bigtablepb.RowFilter_Chain{Filters: filters}})
}

func interleaveOf(filters ...*bigtablepb.RowFilter) *bigtablepb.RowFilter {
	return rowFilter(&bigtablepb.RowFilter_Interleave_{Interleave: &bigtablepb.RowFilter_Interleave{Filters: filters}})
}

func familyOf(pattern string) *bigtablepb.RowFilter {
	return &bigtablepb.RowFilter{Filter: &bigtablepb.RowFilter_FamilyNameRegexFilter{FamilyNameRegexFilter: pattern}}
}

func labelOf(label string) *bigtablepb.RowFilter {
	return &bigtablepb.RowFilter{Filter: &bigtablepb.RowFilter_ApplyLabelTransformer{ApplyLabelTransformer: label}}
}

func rowOf(pattern string) *bigtablepb.RowFilter {
	return &bigtablepb.RowFilter{Filter: &bigtablepb.RowFilter_RowKeyRegexFilter{RowKeyRegexFilter: []byte(pattern)}}
}

func conditionOf(predicate, whenTrue, whenFalse *bigtablepb.RowFilter) *bigtablepb.RowFilter {
	return rowFilter(&bigtablepb.RowFilter_Condition_{Condition: &bigtablepb.RowFilter_Condition{
		PredicateFilter: predicate, TrueFilter: whenTrue, FalseFilter: whenFalse,
	}})
}

var (
	sink     = &bigtablepb.RowFilter{Filter: &bigtablepb.RowFilter_Sink{Sink: true}}
	passAll  = &bigtablepb.RowFilter{Filter: &bigtablepb.RowFilter_PassAllFilter{PassAllFilter: true}}
	blockAll = &bigtablepb.RowFilter{Filter: &bigtablepb.RowFilter_BlockAllFilter{BlockAllFilter: true}}
)

// A sink sends its cells past every enclosing filter; data.proto draws the example this follows.
func TestSink(t *testing.T) {
	t.Parallel()
	name, _ := filterTable(t)
	only := rowOf("a")
	filter := chainOf(only, familyOf("f"), interleaveOf(
		chainOf(valueOf("v3"), labelOf("sunk"), sink),
		valueOf("v2"),
	), valueOf("v1|v2"))
	cells, _, err := rawRead(testContext(t), &bigtablepb.ReadRowsRequest{TableName: fullName(name), Filter: filter})
	if err != nil {
		t.Fatal(err)
	}
	wantLines(t, rawLines(cells), "a f:q1@2000=v2", "a f:q1@3000=v3[sunk]")

	// Nothing of the sink's branch goes on: blocking everything after it leaves exactly what was sunk.
	filter = chainOf(only, familyOf("g"), sink, passAll)
	cells, _, err = rawRead(testContext(t), &bigtablepb.ReadRowsRequest{TableName: fullName(name), Filter: filter})
	if err != nil {
		t.Fatal(err)
	}
	wantLines(t, rawLines(cells), "a g:q1@2000=gv")
	filter = chainOf(only, interleaveOf(sink, passAll), blockAll)
	cells, _, err = rawRead(testContext(t), &bigtablepb.ReadRowsRequest{TableName: fullName(name), Filter: filter})
	if err != nil {
		t.Fatal(err)
	}
	if len(cells) != 5 {
		t.Errorf("a sink beside pass-all delivered %d cells of 5: %v", len(cells), rawLines(cells))
	}
}

func valueOf(pattern string) *bigtablepb.RowFilter {
	return &bigtablepb.RowFilter{Filter: &bigtablepb.RowFilter_ValueRegexFilter{ValueRegexFilter: []byte(pattern)}}
}

func TestValueBitmask(t *testing.T) {
	t.Parallel()
	name, table := newTable(t, "f")
	set(t, table, "r", "f:a@0=\x0f\x01", "f:b@0=\x05\x01", "f:c@0=\x0f", "f:d@0=\x0f\x00")
	filter := &bigtablepb.RowFilter{Filter: &bigtablepb.RowFilter_ValueBitmaskFilter{
		ValueBitmaskFilter: &bigtablepb.ValueBitmask{Mask: []byte{0x05, 0x01}},
	}}
	cells, _, err := rawRead(testContext(t), &bigtablepb.ReadRowsRequest{TableName: fullName(name), Filter: filter})
	if err != nil {
		t.Fatal(err)
	}
	wantLines(t, rawLines(cells), "r f:a@0=\x0f\x01", "r f:b@0=\x05\x01")
}

// Bad filters are refused wherever they stand and although the table is empty.
func TestBadFilters(t *testing.T) {
	t.Parallel()
	name, _ := newTable(t, "f")
	deep := passAll
	for range 25 {
		deep = chainOf(deep, passAll)
	}
	cases := map[string]*bigtablepb.RowFilter{
		"row regex":             rowOf("a("),
		"value regex":           valueOf("[z-a]"),
		"family regex":          familyOf("*"),
		"qualifier regex":       &bigtablepb.RowFilter{Filter: &bigtablepb.RowFilter_ColumnQualifierRegexFilter{ColumnQualifierRegexFilter: []byte("a**")}},
		"nested regex":          chainOf(blockAll, interleaveOf(passAll, conditionOf(passAll, blockAll, valueOf("(")))),
		"empty row regex":       rowOf(""),
		"chain of one":          chainOf(passAll),
		"interleave of one":     interleaveOf(passAll),
		"pass all false":        &bigtablepb.RowFilter{Filter: &bigtablepb.RowFilter_PassAllFilter{}},
		"block all false":       &bigtablepb.RowFilter{Filter: &bigtablepb.RowFilter_BlockAllFilter{}},
		"sample 0":              &bigtablepb.RowFilter{Filter: &bigtablepb.RowFilter_RowSampleFilter{RowSampleFilter: 0}},
		"sample 1":              &bigtablepb.RowFilter{Filter: &bigtablepb.RowFilter_RowSampleFilter{RowSampleFilter: 1}},
		"row limit 0":           &bigtablepb.RowFilter{Filter: &bigtablepb.RowFilter_CellsPerRowLimitFilter{}},
		"column limit negative": &bigtablepb.RowFilter{Filter: &bigtablepb.RowFilter_CellsPerColumnLimitFilter{CellsPerColumnLimitFilter: -1}},
		"row offset negative":   &bigtablepb.RowFilter{Filter: &bigtablepb.RowFilter_CellsPerRowOffsetFilter{CellsPerRowOffsetFilter: -1}},
		"label with capitals":   labelOf("Not Allowed!"),
		"label too long":        labelOf("abcdefghijklmnop"),
		"label empty":           labelOf(""),
		"two labels in a chain": chainOf(labelOf("a"), labelOf("b")),
		"sink in condition":     conditionOf(sink, passAll, passAll),
		"sink in true branch":   conditionOf(passAll, chainOf(passAll, sink), nil),
		"nested too deep":       deep,
		"larger than 20480":     valueOf(strings.Repeat("a", 21_000)),
	}
	for name2, filter := range cases {
		t.Run(name2, func(t *testing.T) {
			_, _, err := rawRead(testContext(t), &bigtablepb.ReadRowsRequest{TableName: fullName(name), Filter: filter})
			wantCode(t, name2, err, codes.InvalidArgument)
		})
	}
}
