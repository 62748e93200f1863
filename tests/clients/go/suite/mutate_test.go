package suite

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"strings"
	"sync"
	"testing"
	"time"

	"cloud.google.com/go/bigtable"
	"cloud.google.com/go/bigtable/apiv2/bigtablepb"
	"google.golang.org/grpc/codes"
)

func TestSetOverwritesTheSameVersion(t *testing.T) {
	t.Parallel()
	_, table := newTable(t, "f")
	set(t, table, "r", "f:q@1000=old", "f:q@2000=other")
	set(t, table, "r", "f:q@1000=first", "f:q@1000=second")
	wantLines(t, readAll(t, table), "r f:q@2000=other f:q@1000=second")
}

func TestServerTime(t *testing.T) {
	t.Parallel()
	_, table := newTable(t, "f")
	before := time.Now().Add(-time.Minute)
	mutation := bigtable.NewMutation()
	mutation.Set("f", "q", bigtable.ServerTime, []byte("x"))
	apply(t, table, "r", mutation)
	row, err := table.ReadRow(testContext(t), "r")
	if err != nil {
		t.Fatal(err)
	}
	stamp := row["f"][0].Timestamp
	if stamp%1000 != 0 || stamp.Time().Before(before) || stamp.Time().After(time.Now().Add(time.Minute)) {
		t.Errorf("server time is %d", stamp)
	}
}

func TestDeletes(t *testing.T) {
	t.Parallel()
	cells := []string{"f:a@3000=3", "f:a@2000=2", "f:a@1000=1", "f:b@1000=b", "g:a@1000=g"}
	cases := []struct {
		name   string
		delete func(*bigtable.Mutation)
		want   string
	}{
		{"column", func(m *bigtable.Mutation) { m.DeleteCellsInColumn("f", "a") }, "r f:b@1000=b g:a@1000=g"},
		{"absent column", func(m *bigtable.Mutation) { m.DeleteCellsInColumn("f", "zz") },
			"r f:a@3000=3 f:a@2000=2 f:a@1000=1 f:b@1000=b g:a@1000=g"},
		{"family", func(m *bigtable.Mutation) { m.DeleteCellsInFamily("f") }, "r g:a@1000=g"},
		{"range", func(m *bigtable.Mutation) { m.DeleteTimestampRange("f", "a", 1000, 3000) },
			"r f:a@3000=3 f:b@1000=b g:a@1000=g"},
		{"range without end", func(m *bigtable.Mutation) { m.DeleteTimestampRange("f", "a", 2000, 0) },
			"r f:a@1000=1 f:b@1000=b g:a@1000=g"},
		{"range from zero", func(m *bigtable.Mutation) { m.DeleteTimestampRange("f", "a", 0, 2000) },
			"r f:a@3000=3 f:a@2000=2 f:b@1000=b g:a@1000=g"},
		{"row", func(m *bigtable.Mutation) { m.DeleteRow() }, ""},
		{"row, then set", func(m *bigtable.Mutation) {
			m.DeleteRow()
			m.Set("f", "a", 1000, []byte("new"))
		}, "r f:a@1000=new"},
		{"set, then delete", func(m *bigtable.Mutation) {
			m.Set("f", "new", 9000, []byte("new"))
			m.DeleteCellsInFamily("f")
		}, "r g:a@1000=g"},
	}
	_, table := newTable(t, "f", "g")
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			reset := bigtable.NewMutation()
			reset.DeleteRow()
			apply(t, table, "r", reset)
			set(t, table, "r", cells...)
			mutation := bigtable.NewMutation()
			c.delete(mutation)
			apply(t, table, "r", mutation)
			if c.want == "" {
				wantLines(t, readAll(t, table))
			} else {
				wantLines(t, readAll(t, table), c.want)
			}
		})
	}
}

// A delete hides what came before it in commit order, whatever the timestamps: a later write of an older version shows.
func TestDeletesArePositional(t *testing.T) {
	t.Parallel()
	_, table := newTable(t, "f")
	for _, remove := range []func(*bigtable.Mutation){
		func(m *bigtable.Mutation) { m.DeleteRow() },
		func(m *bigtable.Mutation) { m.DeleteCellsInFamily("f") },
		func(m *bigtable.Mutation) { m.DeleteCellsInColumn("f", "q") },
		func(m *bigtable.Mutation) { m.DeleteTimestampRange("f", "q", 0, 9000) },
	} {
		set(t, table, "r", "f:q@5000=before")
		mutation := bigtable.NewMutation()
		remove(mutation)
		apply(t, table, "r", mutation)
		wantLines(t, readAll(t, table))
		set(t, table, "r", "f:q@1000=after")
		wantLines(t, readAll(t, table), "r f:q@1000=after")
	}
}

// Either all mutations of a request apply or none.
func TestMutateRowIsAtomic(t *testing.T) {
	t.Parallel()
	_, table := newTable(t, "f")
	set(t, table, "r", "f:q@1000=before")
	mutation := bigtable.NewMutation()
	mutation.DeleteRow()
	mutation.Set("f", "q", 1000, []byte("after"))
	mutation.Set("absent", "q", 1000, []byte("x"))
	err := table.Apply(testContext(t), "r", mutation)
	wantCode(t, "unknown family", err, codes.NotFound)
	wantLines(t, readAll(t, table), "r f:q@1000=before")
}

func setCell(family string, micros int64) *bigtablepb.Mutation {
	return &bigtablepb.Mutation{Mutation: &bigtablepb.Mutation_SetCell_{SetCell: &bigtablepb.Mutation_SetCell{
		FamilyName: family, ColumnQualifier: []byte("q"), TimestampMicros: micros, Value: []byte("v"),
	}}}
}

func deleteRange(start, end int64) *bigtablepb.Mutation {
	return &bigtablepb.Mutation{Mutation: &bigtablepb.Mutation_DeleteFromColumn_{
		DeleteFromColumn: &bigtablepb.Mutation_DeleteFromColumn{
			FamilyName: "f", ColumnQualifier: []byte("q"),
			TimeRange: &bigtablepb.TimestampRange{StartTimestampMicros: start, EndTimestampMicros: end},
		},
	}}
}

func TestBadMutations(t *testing.T) {
	t.Parallel()
	name, table := newTable(t, "f")
	many := make([]*bigtablepb.Mutation, 100_001)
	for i := range many {
		many[i] = setCell("f", 0)
	}
	add := &bigtablepb.Mutation{Mutation: &bigtablepb.Mutation_AddToCell_{AddToCell: &bigtablepb.Mutation_AddToCell{
		FamilyName:      "f",
		ColumnQualifier: &bigtablepb.Value{Kind: &bigtablepb.Value_RawValue{RawValue: []byte("q")}},
		Timestamp:       &bigtablepb.Value{Kind: &bigtablepb.Value_RawTimestampMicros{RawTimestampMicros: 0}},
		Input:           &bigtablepb.Value{Kind: &bigtablepb.Value_IntValue{IntValue: 1}},
	}}}
	longest := strings.Repeat("k", 4096)
	cases := []struct {
		name, table, row string
		mutations        []*bigtablepb.Mutation
		code             codes.Code
	}{
		{"no mutations", name, "r", nil, codes.InvalidArgument},
		{"unset mutation", name, "r", []*bigtablepb.Mutation{{}}, codes.InvalidArgument},
		{"empty row key", name, "", []*bigtablepb.Mutation{setCell("f", 0)}, codes.InvalidArgument},
		{"row key of 4097 bytes", name, longest + "k", []*bigtablepb.Mutation{setCell("f", 0)}, codes.InvalidArgument},
		{"timestamp -2", name, "r", []*bigtablepb.Mutation{setCell("f", -2)}, codes.InvalidArgument},
		{"timestamp finer than the table's", name, "r", []*bigtablepb.Mutation{setCell("f", 1)}, codes.InvalidArgument},
		{"unknown family", name, "r", []*bigtablepb.Mutation{setCell("absent", 0)}, codes.NotFound},
		{"missing table", "absent", "r", []*bigtablepb.Mutation{setCell("f", 0)}, codes.NotFound},
		{"too many mutations", name, "r", many, codes.InvalidArgument},
		{"inverted delete", name, "r", []*bigtablepb.Mutation{deleteRange(2000, 1000)}, codes.InvalidArgument},
		{"empty delete", name, "r", []*bigtablepb.Mutation{deleteRange(2000, 2000)}, codes.InvalidArgument},
		{"delete finer than the table's", name, "r", []*bigtablepb.Mutation{deleteRange(0, 1)}, codes.InvalidArgument},
		{"add to a plain family", name, "r", []*bigtablepb.Mutation{add}, codes.InvalidArgument},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			_, err := rawData.MutateRow(testContext(t), &bigtablepb.MutateRowRequest{
				TableName: fullName(c.table), RowKey: []byte(c.row), Mutations: c.mutations,
			})
			wantCode(t, c.name, err, c.code)
		})
	}
	wantLines(t, readAll(t, table))
	set(t, table, longest, "f:q@0=x")
	wantLines(t, readAll(t, table), longest+" f:q@0=x")
}

func TestBulkReportsEveryEntry(t *testing.T) {
	t.Parallel()
	name, table := newTable(t, "f")
	good, bad := bigtable.NewMutation(), bigtable.NewMutation()
	good.Set("f", "q", 0, []byte("x"))
	bad.Set("f", "q", 0, []byte("half"))
	bad.Set("absent", "q", 0, []byte("x"))
	failed, err := table.ApplyBulk(testContext(t), []string{"a", "b", "c"}, []*bigtable.Mutation{good, bad, good})
	if err != nil || len(failed) != 3 || failed[0] != nil || failed[1] == nil || failed[2] != nil {
		t.Fatalf("%v, %v", err, failed)
	}
	wantLines(t, readAll(t, table), "a f:q@0=x", "c f:q@0=x")

	entries := []*bigtablepb.MutateRowsRequest_Entry{
		{RowKey: []byte("d"), Mutations: []*bigtablepb.Mutation{setCell("f", 0)}},
		{RowKey: []byte(""), Mutations: []*bigtablepb.Mutation{setCell("f", 0)}},
		{RowKey: []byte("e")},
		{RowKey: []byte("f"), Mutations: []*bigtablepb.Mutation{setCell("absent", 0)}},
		{RowKey: []byte("g"), Mutations: []*bigtablepb.Mutation{setCell("f", 7)}},
		{RowKey: []byte("h"), Mutations: []*bigtablepb.Mutation{setCell("f", 0)}},
	}
	want := []codes.Code{codes.OK, codes.InvalidArgument, codes.InvalidArgument, codes.NotFound, codes.InvalidArgument, codes.OK}
	stream, err := rawData.MutateRows(testContext(t), &bigtablepb.MutateRowsRequest{TableName: fullName(name), Entries: entries})
	if err != nil {
		t.Fatal(err)
	}
	answered := map[int64]codes.Code{}
	for {
		response, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		for _, entry := range response.Entries {
			if _, twice := answered[entry.Index]; twice {
				t.Errorf("entry %d was answered twice", entry.Index)
			}
			answered[entry.Index] = codes.Code(entry.Status.GetCode())
		}
	}
	for i, code := range want {
		if got, ok := answered[int64(i)]; !ok || got != code {
			t.Errorf("entry %d: answered %v with %v, want %v", i, ok, got, code)
		}
	}
}

// Several entries for one row apply each by itself.
func TestBulkWithRepeatedRow(t *testing.T) {
	t.Parallel()
	_, table := newTable(t, "f")
	var keys []string
	var mutations []*bigtable.Mutation
	for i := range 200 {
		mutation := bigtable.NewMutation()
		mutation.Set("f", fmt.Sprintf("q%03d", i), 0, []byte("x"))
		keys, mutations = append(keys, "r"), append(mutations, mutation)
	}
	failed, err := table.ApplyBulk(testContext(t), keys, mutations)
	if err != nil || failed != nil {
		t.Fatal(err, failed)
	}
	row, err := table.ReadRow(testContext(t), "r")
	if err != nil || len(row["f"]) != 200 {
		t.Errorf("%d cells, %v", len(row["f"]), err)
	}
}

func TestCheckAndMutate(t *testing.T) {
	t.Parallel()
	name, table := newTable(t, "f")
	write := func(value string) *bigtable.Mutation {
		mutation := bigtable.NewMutation()
		mutation.Set("f", "out", 0, []byte(value))
		return mutation
	}
	check := func(filter bigtable.Filter, want bool, line string) {
		t.Helper()
		var matched bool
		mutation := bigtable.NewCondMutation(filter, write("true"), write("false"))
		apply(t, table, "r", mutation, bigtable.GetCondMutationResult(&matched))
		if matched != want {
			t.Errorf("matched = %v, want %v", matched, want)
		}
		wantLines(t, readAll(t, table), line)
	}
	check(bigtable.ColumnFilter("in"), false, "r f:out@0=false")
	set(t, table, "r", "f:in@0=")
	// A cell with an empty value still is a cell.
	check(bigtable.ColumnFilter("in"), true, "r f:in@0= f:out@0=true")
	check(bigtable.ValueFilter("zz"), false, "r f:in@0= f:out@0=false")

	// Without a predicate the question is whether the row exists.
	request := &bigtablepb.CheckAndMutateRowRequest{
		TableName: fullName(name), RowKey: []byte("r"), TrueMutations: []*bigtablepb.Mutation{setCell("f", 0)},
	}
	response, err := rawData.CheckAndMutateRow(testContext(t), request)
	if err != nil || !response.PredicateMatched {
		t.Errorf("%v, %v", response, err)
	}
	request.RowKey = []byte("absent")
	response, err = rawData.CheckAndMutateRow(testContext(t), request)
	if err != nil || response.PredicateMatched {
		t.Errorf("%v, %v", response, err)
	}
	wantLines(t, readAll(t, table), "r f:in@0= f:out@0=false f:q@0=v")

	request.TrueMutations = nil
	_, err = rawData.CheckAndMutateRow(testContext(t), request)
	wantCode(t, "no mutations at all", err, codes.InvalidArgument)
	request.TrueMutations = []*bigtablepb.Mutation{setCell("absent", 0)}
	request.RowKey = []byte("r")
	_, err = rawData.CheckAndMutateRow(testContext(t), request)
	wantCode(t, "unknown family", err, codes.NotFound)
	request.TrueMutations, request.PredicateFilter = []*bigtablepb.Mutation{setCell("f", 0)}, valueOf("(")
	_, err = rawData.CheckAndMutateRow(testContext(t), request)
	wantCode(t, "bad predicate", err, codes.InvalidArgument)
}

// Of many concurrent claims to one row exactly one succeeds.
func TestCheckAndMutateIsAtomic(t *testing.T) {
	t.Parallel()
	_, table := newTable(t, "f")
	var lock sync.Mutex
	var group sync.WaitGroup
	winners := 0
	for i := range 32 {
		group.Go(func() {
			claim := bigtable.NewMutation()
			claim.Set("f", "owner", 0, fmt.Append(nil, i))
			var taken bool
			mutation := bigtable.NewCondMutation(bigtable.ColumnFilter("owner"), nil, claim)
			if err := table.Apply(testContext(t), "r", mutation, bigtable.GetCondMutationResult(&taken)); err != nil {
				t.Error(err)
			}
			lock.Lock()
			defer lock.Unlock()
			if !taken {
				winners++
			}
		})
	}
	group.Wait()
	if winners != 1 {
		t.Errorf("%d claims succeeded", winners)
	}
}

func TestReadModifyWrite(t *testing.T) {
	t.Parallel()
	_, table := newTable(t, "f")
	set(t, table, "r", "f:old@1000=ab")
	rmw := bigtable.NewReadModifyWrite()
	rmw.Increment("f", "n", 5)
	rmw.AppendValue("f", "old", []byte("cd"))
	rmw.Increment("f", "n", -7)
	rmw.AppendValue("f", "new", []byte("x"))
	row, err := table.ApplyReadModifyWrite(testContext(t), "r", rmw)
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for _, item := range row["f"] {
		got[item.Column] = string(item.Value)
		if item.Timestamp < 1_000_000_000_000_000 || item.Timestamp%1000 != 0 {
			t.Errorf("%s is written at %d, want the server's time", item.Column, item.Timestamp)
		}
	}
	minusTwo := string(binary.BigEndian.AppendUint64(nil, ^uint64(1)))
	if len(row["f"]) != 3 || got["f:n"] != minusTwo || got["f:old"] != "abcd" || got["f:new"] != "x" {
		t.Errorf("got %q", got)
	}
	wrap := bigtable.NewReadModifyWrite()
	wrap.Increment("f", "wrap", math.MaxInt64)
	wrap.Increment("f", "wrap", 1)
	row, err = table.ApplyReadModifyWrite(testContext(t), "r", wrap)
	if err != nil || int64(binary.BigEndian.Uint64(row["f"][0].Value)) != math.MinInt64 {
		t.Errorf("%v, %v", row, err)
	}
}

// The result lands on the newest cell's timestamp when that lies in the future.
func TestReadModifyWriteNeverHidesItsResult(t *testing.T) {
	t.Parallel()
	_, table := newTable(t, "f")
	const future = 9_000_000_000_000_000
	set(t, table, "r", fmt.Sprintf("f:q@%d=a", int64(future)))
	rmw := bigtable.NewReadModifyWrite()
	rmw.AppendValue("f", "q", []byte("b"))
	if _, err := table.ApplyReadModifyWrite(testContext(t), "r", rmw); err != nil {
		t.Fatal(err)
	}
	wantLines(t, readAll(t, table), fmt.Sprintf("r f:q@%d=ab", int64(future)))
}

func TestBadReadModifyWrite(t *testing.T) {
	t.Parallel()
	name, table := newTable(t, "f")
	set(t, table, "r", "f:text@0=abc")
	before := readAll(t, table)
	rmw := bigtable.NewReadModifyWrite()
	rmw.AppendValue("f", "other", []byte("x"))
	rmw.Increment("f", "text", 1)
	_, err := table.ApplyReadModifyWrite(testContext(t), "r", rmw)
	wantCode(t, "increment of three bytes", err, codes.InvalidArgument, codes.FailedPrecondition)
	wantLines(t, readAll(t, table), before...)
	rmw = bigtable.NewReadModifyWrite()
	rmw.Increment("absent", "q", 1)
	_, err = table.ApplyReadModifyWrite(testContext(t), "r", rmw)
	wantCode(t, "unknown family", err, codes.NotFound)
	_, err = rawData.ReadModifyWriteRow(testContext(t), &bigtablepb.ReadModifyWriteRowRequest{
		TableName: fullName(name), RowKey: []byte("r"),
	})
	wantCode(t, "no rules", err, codes.InvalidArgument)
}

func TestIncrementsAddUp(t *testing.T) {
	t.Parallel()
	_, table := newTable(t, "f")
	var group sync.WaitGroup
	const workers, each = 16, 25
	for range workers {
		group.Go(func() {
			for range each {
				rmw := bigtable.NewReadModifyWrite()
				rmw.Increment("f", "n", 1)
				if _, err := table.ApplyReadModifyWrite(testContext(t), "r", rmw); err != nil {
					t.Error(err)
				}
			}
		})
	}
	group.Wait()
	row, err := table.ReadRow(testContext(t), "r", bigtable.RowFilter(bigtable.LatestNFilter(1)))
	if err != nil || binary.BigEndian.Uint64(row["f"][0].Value) != workers*each {
		t.Errorf("%v, %v", row, err)
	}
}

func TestAggregates(t *testing.T) {
	t.Parallel()
	_, table := newTableFromConf(t, &bigtable.TableConf{
		TableID: uniqueName("agg"),
		ColumnFamilies: map[string]bigtable.Family{
			"sum": {ValueType: bigtable.AggregateType{Input: bigtable.Int64Type{}, Aggregator: bigtable.SumAggregator{}}},
			"min": {ValueType: bigtable.AggregateType{Input: bigtable.Int64Type{}, Aggregator: bigtable.MinAggregator{}}},
			"max": {ValueType: bigtable.AggregateType{Input: bigtable.Int64Type{}, Aggregator: bigtable.MaxAggregator{}}},
		},
	})
	for _, value := range []int64{5, -3, 4} {
		mutation := bigtable.NewMutation()
		for _, family := range []string{"sum", "min", "max"} {
			mutation.AddIntToCell(family, "q", 1000, value)
		}
		mutation.MergeBytesToCell("sum", "merged", 1000, binary.BigEndian.AppendUint64(nil, uint64(value)))
		apply(t, table, "r", mutation)
	}
	row, err := table.ReadRow(testContext(t), "r")
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]int64{"sum:q": 6, "sum:merged": 6, "min:q": -3, "max:q": 5}
	seen := 0
	for _, items := range row {
		for _, item := range items {
			seen++
			if len(item.Value) != 8 || int64(binary.BigEndian.Uint64(item.Value)) != want[item.Column] {
				t.Errorf("%s is %x, want %d", item.Column, item.Value, want[item.Column])
			}
		}
	}
	if seen != len(want) {
		t.Errorf("%d cells, want %d", seen, len(want))
	}
}

// Rows whose last cell goes are gone.
func TestDeletedRowsVanish(t *testing.T) {
	t.Parallel()
	_, table := newTable(t, "f")
	bulkRows(t, table, 20)
	for i := range 20 {
		if i%2 == 0 {
			mutation := bigtable.NewMutation()
			mutation.DeleteCellsInColumn("f", "q")
			apply(t, table, fmt.Sprintf("r%05d", i), mutation)
		}
	}
	if got := keysOf(t, table, bigtable.InfiniteRange("")); len(got) != 10 || got[0] != "r00001" {
		t.Errorf("got %q", got)
	}
	if got := keysOf(t, table, bigtable.InfiniteRange(""), bigtable.LimitRows(3)); len(got) != 3 {
		t.Errorf("a limit of 3 gave %q", got)
	}
}
