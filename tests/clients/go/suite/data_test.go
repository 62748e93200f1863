package suite

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"sync"
	"testing"

	"cloud.google.com/go/bigtable"
	"cloud.google.com/go/bigtable/apiv2/bigtablepb"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

// bulkRows writes rows `r00000` … with one small cell each.
func bulkRows(t *testing.T, table *bigtable.Table, rows int) {
	t.Helper()
	var keys []string
	var mutations []*bigtable.Mutation
	for i := range rows {
		mutation := bigtable.NewMutation()
		mutation.Set("f", "q", 1000, fmt.Appendf(nil, "value-%d", i))
		keys = append(keys, fmt.Sprintf("r%05d", i))
		mutations = append(mutations, mutation)
	}
	failed, err := table.ApplyBulk(testContext(t), keys, mutations)
	if err != nil || failed != nil {
		t.Fatalf("bulk write: %v, %v", err, failed)
	}
}

func keysOf(t *testing.T, table *bigtable.Table, rows bigtable.RowSet, opts ...bigtable.ReadOption) []string {
	t.Helper()
	var keys []string
	err := table.ReadRows(testContext(t), rows, func(row bigtable.Row) bool {
		keys = append(keys, row.Key())
		return true
	}, opts...)
	if err != nil {
		t.Fatalf("reading: %v", err)
	}
	return keys
}

func TestReadRow(t *testing.T) {
	t.Parallel()
	_, table := newTable(t, "f")
	set(t, table, "r", "f:b@1000=2", "f:a@1000=1", "f:a@2000=3", "f:@1000=empty qualifier", "f:\x00\xff@1000=bytes")
	row, err := table.ReadRow(testContext(t), "r")
	if err != nil {
		t.Fatal(err)
	}
	wantLines(t, []string{renderRow(row)},
		"r f:@1000=empty qualifier f:\x00\xff@1000=bytes f:a@2000=3 f:a@1000=1 f:b@1000=2")
	row, err = table.ReadRow(testContext(t), "absent")
	if err != nil || row != nil {
		t.Errorf("an absent row: %v, %v", row, err)
	}
}

func TestRowKeysAreBytes(t *testing.T) {
	t.Parallel()
	_, table := newTable(t, "f")
	keys := []string{"\x00", "\x00\x00", "\x00\x01", "\x00\xff", "\x01", "a", "a\x00", "a\x00b", "aa", "§", "\xff", "\xff\xff"}
	for _, i := range rand.Perm(len(keys)) {
		set(t, table, keys[i], "f:q@0=x")
	}
	wantLines(t, keysOf(t, table, bigtable.InfiniteRange("")), keys...)
	wantLines(t, keysOf(t, table, bigtable.PrefixRange("a")), "a", "a\x00", "a\x00b", "aa")
	wantLines(t, keysOf(t, table, bigtable.PrefixRange("\xff")), "\xff", "\xff\xff")
	wantLines(t, keysOf(t, table, bigtable.NewOpenRange("\x00", "\x00\xff")), "\x00\x00", "\x00\x01")
}

func TestRanges(t *testing.T) {
	t.Parallel()
	_, table := newTable(t, "f")
	for _, key := range []string{"a", "b", "c", "d", "e"} {
		set(t, table, key, "f:q@0=x")
	}
	cases := []struct {
		name string
		rows bigtable.RowSet
		want []string
	}{
		{"closed open", bigtable.NewClosedOpenRange("b", "d"), []string{"b", "c"}},
		{"open closed", bigtable.NewOpenClosedRange("b", "d"), []string{"c", "d"}},
		{"open", bigtable.NewOpenRange("b", "d"), []string{"c"}},
		{"closed", bigtable.NewClosedRange("b", "d"), []string{"b", "c", "d"}},
		{"from", bigtable.InfiniteRange("d"), []string{"d", "e"}},
		{"to", bigtable.InfiniteReverseRange("b"), []string{"a", "b"}},
		{"single", bigtable.SingleRow("c"), []string{"c"}},
		{"list in any order, with duplicates", bigtable.RowList{"e", "a", "nope", "a"}, []string{"a", "e"}},
		{"overlapping ranges", bigtable.RowRangeList{
			bigtable.NewRange("c", "e"), bigtable.NewRange("a", "d"), bigtable.NewRange("b", "c")},
			[]string{"a", "b", "c", "d"}},
		{"between the rows", bigtable.NewOpenRange("b", "c"), nil},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			wantLines(t, keysOf(t, table, c.rows), c.want...)
			reversed := make([]string, len(c.want))
			for i, key := range c.want {
				reversed[len(c.want)-1-i] = key
			}
			wantLines(t, keysOf(t, table, c.rows, bigtable.ReverseScan()), reversed...)
		})
	}
}

func TestLimits(t *testing.T) {
	t.Parallel()
	_, table := newTable(t, "f")
	bulkRows(t, table, 50)
	wantLines(t, keysOf(t, table, bigtable.InfiniteRange(""), bigtable.LimitRows(2)), "r00000", "r00001")
	wantLines(t, keysOf(t, table, bigtable.InfiniteRange(""), bigtable.LimitRows(2), bigtable.ReverseScan()),
		"r00049", "r00048")
	// The limit counts rows that the filter lets through.
	filter := bigtable.RowFilter(bigtable.RowKeyFilter(".*[37]"))
	wantLines(t, keysOf(t, table, bigtable.InfiniteRange(""), bigtable.LimitRows(3), filter), "r00003", "r00007", "r00013")
}

// A client may stop in the middle of a scan.
func TestScanStopsEarly(t *testing.T) {
	t.Parallel()
	_, table := newTable(t, "f")
	bulkRows(t, table, 1000)
	seen := 0
	err := table.ReadRows(testContext(t), bigtable.InfiniteRange(""), func(bigtable.Row) bool {
		seen++
		return seen < 10
	})
	if err != nil || seen != 10 {
		t.Errorf("%d rows, %v", seen, err)
	}
}

func TestReverseScanContent(t *testing.T) {
	t.Parallel()
	_, table := newTable(t, "f")
	set(t, table, "a", "f:q1@2000=2", "f:q1@1000=1", "f:q2@1000=3")
	set(t, table, "b", "f:q1@2000=5", "f:q1@1000=4")
	// Rows descend; the cells of a row keep their order.
	wantLines(t, readAll(t, table, bigtable.ReverseScan()),
		"b f:q1@2000=5 f:q1@1000=4", "a f:q1@2000=2 f:q1@1000=1 f:q2@1000=3")
}

func TestReverseScanNeedsTheFeature(t *testing.T) {
	t.Parallel()
	name, table := newTable(t, "f")
	set(t, table, "a", "f:q@0=x")
	request := &bigtablepb.ReadRowsRequest{TableName: fullName(name), Reversed: true}
	if _, _, err := rawRead(testContext(t), request); err == nil {
		t.Error("a reversed scan without the feature flag was served")
	}
	ctx := withFeatures(testContext(t), &bigtablepb.FeatureFlags{ReverseScans: true})
	if cells, _, err := rawRead(ctx, request); err != nil || len(cells) != 1 {
		t.Errorf("with the flag: %v, %v", cells, err)
	}
}

func TestLargeCellsAndRows(t *testing.T) {
	t.Parallel()
	name, table := newTable(t, "f")
	value := randomBytes(10<<20, 1)
	mutation := bigtable.NewMutation()
	mutation.Set("f", "large", 1000, value)
	mutation.Set("f", "small", 1000, []byte("s"))
	apply(t, table, "r", mutation)
	row, err := table.ReadRow(testContext(t), "r")
	if err != nil {
		t.Fatal(err)
	}
	if items := row["f"]; len(items) != 2 || !bytes.Equal(items[0].Value, value) || string(items[1].Value) != "s" {
		t.Errorf("a cell of 10 MiB did not come back as written")
	}
	// That clients with gRPC's limit of 4 MiB get it in pieces is checked with Python's.
	cells, _, err := rawRead(testContext(t), &bigtablepb.ReadRowsRequest{TableName: fullName(name)})
	if err != nil || len(cells) != 2 || !bytes.Equal(cells[0].value, value) {
		t.Errorf("raw: %d cells, %v", len(cells), err)
	}
	// A row of many cells of medium size, likewise above the message limit.
	for i := range 24 {
		mutation := bigtable.NewMutation()
		mutation.Set("f", fmt.Sprintf("q%02d", i), 1000, randomBytes(512<<10, uint64(i)))
		apply(t, table, "wide", mutation)
	}
	cells, _, err = rawRead(testContext(t), &bigtablepb.ReadRowsRequest{
		TableName: fullName(name), Rows: &bigtablepb.RowSet{RowKeys: [][]byte{[]byte("wide")}},
	})
	if err != nil || len(cells) != 24 {
		t.Fatalf("a row of 12 MiB: %d cells, %v", len(cells), err)
	}
	for i, cell := range cells {
		if !bytes.Equal(cell.value, randomBytes(512<<10, uint64(i))) {
			t.Errorf("cell %d of the wide row differs", i)
		}
	}
}

func randomBytes(length int, seed uint64) []byte {
	source := rand.NewChaCha8([32]byte{byte(seed), byte(seed >> 8), 7})
	value := make([]byte, length)
	_, _ = source.Read(value)
	return value
}

func TestManyVersionsAndColumns(t *testing.T) {
	t.Parallel()
	_, table := newTable(t, "f")
	mutation := bigtable.NewMutation()
	for i := range 5000 {
		mutation.Set("f", fmt.Sprintf("q%04d", i%100), bigtable.Timestamp(i/100*1000), []byte("v"))
	}
	apply(t, table, "r", mutation)
	row, err := table.ReadRow(testContext(t), "r")
	if err != nil || len(row["f"]) != 5000 {
		t.Fatalf("%d cells, %v", len(row["f"]), err)
	}
	for i, item := range row["f"] {
		if item.Column != fmt.Sprintf("f:q%04d", i/50) || item.Timestamp != bigtable.Timestamp((49-i%50)*1000) {
			t.Fatalf("cell %d is %s@%d", i, item.Column, item.Timestamp)
		}
	}
}

func TestBadReads(t *testing.T) {
	t.Parallel()
	name, _ := newTable(t, "f")
	ranges := func(r *bigtablepb.RowRange) *bigtablepb.RowSet {
		return &bigtablepb.RowSet{RowRanges: []*bigtablepb.RowRange{r}}
	}
	inverted := ranges(&bigtablepb.RowRange{
		StartKey: &bigtablepb.RowRange_StartKeyClosed{StartKeyClosed: []byte("b")},
		EndKey:   &bigtablepb.RowRange_EndKeyOpen{EndKeyOpen: []byte("a")},
	})
	cases := []struct {
		name    string
		request *bigtablepb.ReadRowsRequest
		code    codes.Code
	}{
		{"missing table", &bigtablepb.ReadRowsRequest{TableName: fullName("nope")}, codes.NotFound},
		{"malformed table", &bigtablepb.ReadRowsRequest{TableName: "nope"}, codes.InvalidArgument},
		{"no table", &bigtablepb.ReadRowsRequest{}, codes.InvalidArgument},
		{"inverted range", &bigtablepb.ReadRowsRequest{TableName: fullName(name), Rows: inverted}, codes.InvalidArgument},
		{"negative limit", &bigtablepb.ReadRowsRequest{TableName: fullName(name), RowsLimit: -1}, codes.InvalidArgument},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			_, _, err := rawRead(testContext(t), c.request)
			wantCode(t, c.name, err, c.code)
		})
	}
	// An empty end is no end at all.
	request := &bigtablepb.ReadRowsRequest{TableName: fullName(name), Rows: ranges(&bigtablepb.RowRange{
		StartKey: &bigtablepb.RowRange_StartKeyClosed{StartKeyClosed: []byte("b")},
		EndKey:   &bigtablepb.RowRange_EndKeyOpen{EndKeyOpen: []byte{}},
	})}
	if _, _, err := rawRead(testContext(t), request); err != nil {
		t.Errorf("empty end key: %v", err)
	}
}

func TestReadStats(t *testing.T) {
	t.Parallel()
	_, table := filterTable(t)
	stats := func(rows bigtable.RowSet, opts ...bigtable.ReadOption) bigtable.ReadIterationStats {
		var got bigtable.FullReadStats
		opts = append(opts, bigtable.WithFullReadStats(func(s *bigtable.FullReadStats) { got = *s }))
		read(t, table, rows, opts...)
		return got.ReadIterationStats
	}
	got := stats(bigtable.InfiniteRange(""))
	want := bigtable.ReadIterationStats{CellsReturnedCount: 8, CellsSeenCount: 8, RowsReturnedCount: 3, RowsSeenCount: 3}
	if got != want {
		t.Errorf("everything: got %+v, want %+v", got, want)
	}
	got = stats(bigtable.SingleRow("a"), bigtable.RowFilter(bigtable.ValueFilter("v1")))
	if got.CellsReturnedCount != 1 || got.RowsReturnedCount != 1 || got.RowsSeenCount != 1 || got.CellsSeenCount < 1 {
		t.Errorf("filtered: got %+v", got)
	}
	got = stats(bigtable.SingleRow("absent"))
	if got.CellsReturnedCount != 0 || got.RowsReturnedCount != 0 {
		t.Errorf("nothing: got %+v", got)
	}
}

func TestSampleRowKeys(t *testing.T) {
	t.Parallel()
	name, table := newTableFromConfNamed(t, []string{"b", "m", "t"})
	keys, err := table.SampleRowKeys(testContext(t))
	if err != nil {
		t.Fatal(err)
	}
	for _, split := range []string{"b", "m", "t"} {
		if !contains(keys, split) {
			t.Errorf("split %q is not among the samples %q", split, keys)
		}
	}
	set(t, table, "a", "f:q@0=x")
	stream, err := rawData.SampleRowKeys(testContext(t), &bigtablepb.SampleRowKeysRequest{TableName: fullName(name)})
	if err != nil {
		t.Fatal(err)
	}
	var last *bigtablepb.SampleRowKeysResponse
	for {
		sample, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if last != nil && len(sample.RowKey) > 0 && bytes.Compare(sample.RowKey, last.RowKey) <= 0 {
			t.Errorf("sample %q after %q", sample.RowKey, last.RowKey)
		}
		if last != nil && sample.OffsetBytes < last.OffsetBytes {
			t.Errorf("offset %d after %d", sample.OffsetBytes, last.OffsetBytes)
		}
		last = sample
	}
	if last == nil || len(last.RowKey) != 0 {
		t.Errorf("the last sample is %v, want the end of the table", last)
	}
	stream, err = rawData.SampleRowKeys(testContext(t), &bigtablepb.SampleRowKeysRequest{TableName: fullName("nope")})
	if err == nil {
		_, err = stream.Recv()
	}
	wantCode(t, "missing table", err, codes.NotFound)
}

func newTableFromConfNamed(t *testing.T, splits []string) (string, *bigtable.Table) {
	t.Helper()
	return newTableFromConf(t, &bigtable.TableConf{
		TableID: uniqueName("split"), SplitKeys: splits, Families: map[string]bigtable.GCPolicy{"f": bigtable.NoGcPolicy()},
	})
}

func contains(list []string, want string) bool {
	for _, item := range list {
		if item == want {
			return true
		}
	}
	return false
}

// Rows of a pre-split table come back as one sorted stream, forwards and backwards.
func TestScanAcrossSplits(t *testing.T) {
	t.Parallel()
	_, table := newTableFromConfNamed(t, []string{"r00100", "r00200", "r00300"})
	bulkRows(t, table, 400)
	forwards := keysOf(t, table, bigtable.InfiniteRange(""))
	backwards := keysOf(t, table, bigtable.InfiniteRange(""), bigtable.ReverseScan())
	if len(forwards) != 400 || len(backwards) != 400 {
		t.Fatalf("%d rows forwards, %d backwards", len(forwards), len(backwards))
	}
	for i := range forwards {
		if want := fmt.Sprintf("r%05d", i); forwards[i] != want || backwards[399-i] != want {
			t.Fatalf("row %d is %q forwards and %q backwards", i, forwards[i], backwards[399-i])
		}
	}
	wantLines(t, keysOf(t, table, bigtable.NewRange("r00099", "r00102")), "r00099", "r00100", "r00101")
	if got := keysOf(t, table, bigtable.InfiniteRange(""), bigtable.LimitRows(250)); len(got) != 250 {
		t.Errorf("a limit of 250 across tablets gave %d rows", len(got))
	}
}

func TestPingAndWarm(t *testing.T) {
	t.Parallel()
	if _, err := rawData.PingAndWarm(testContext(t), &bigtablepb.PingAndWarmRequest{Name: instanceName()}); err != nil {
		t.Error(err)
	}
}

// Calls the server does not implement must say so; none may end the process.
func TestUnimplementedCallsAnswer(t *testing.T) {
	t.Parallel()
	name, _ := newTable(t, "f")
	_, err := rawData.PrepareQuery(testContext(t), &bigtablepb.PrepareQueryRequest{InstanceName: instanceName(), Query: "SELECT 1"})
	wantCode(t, "PrepareQuery", err, codes.Unimplemented, codes.OK)
	stream, err := rawData.ReadChangeStream(testContext(t), &bigtablepb.ReadChangeStreamRequest{TableName: fullName(name)})
	if err == nil {
		_, err = stream.Recv()
	}
	wantCode(t, "ReadChangeStream", err, codes.Unimplemented, codes.FailedPrecondition)
	set(t, client.Open(name), "r", "f:q@0=still alive")
}

// A reader sees a row either before or after an atomic write, never in between.
func TestReadersSeeWholeRows(t *testing.T) {
	t.Parallel()
	_, table := newTable(t, "f")
	write := func(ctx context.Context, i int) error {
		mutation := bigtable.NewMutation()
		for column := range 8 {
			mutation.Set("f", fmt.Sprint(column), 1000, fmt.Append(nil, i))
		}
		return table.Apply(ctx, "r", mutation)
	}
	if err := write(testContext(t), 0); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(testContext(t))
	var writer sync.WaitGroup
	writer.Go(func() {
		for i := 1; ctx.Err() == nil; i++ {
			_ = write(ctx, i)
		}
	})
	for range 300 {
		row, err := table.ReadRow(testContext(t), "r")
		if err != nil || len(row["f"]) != 8 {
			t.Errorf("%d cells, %v", len(row["f"]), err)
			break
		}
		for _, item := range row["f"] {
			if !bytes.Equal(item.Value, row["f"][0].Value) {
				t.Errorf("a torn row: %s", renderRow(row))
			}
		}
	}
	cancel()
	writer.Wait()
}

// Presence on the wire is by message: an empty qualifier still is a qualifier.
func TestEmptyQualifierInStream(t *testing.T) {
	t.Parallel()
	name, table := newTable(t, "f")
	set(t, table, "r", "f:@0=x")
	stream, err := rawData.ReadRows(testContext(t), &bigtablepb.ReadRowsRequest{TableName: fullName(name)})
	if err != nil {
		t.Fatal(err)
	}
	response, err := stream.Recv()
	if err != nil || len(response.Chunks) != 1 {
		t.Fatalf("%v, %v", response, err)
	}
	if !proto.Equal(response.Chunks[0].Qualifier, &wrapperspb.BytesValue{}) {
		t.Errorf("qualifier is %v", response.Chunks[0].Qualifier)
	}
}
