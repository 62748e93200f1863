// Package suite checks a running server with Google's own Go client and, where that client cannot say a thing, with
// the raw gRPC stubs it is built on.
//
// The address comes from STELE_ADDRESS or BIGTABLE_EMULATOR_HOST. Every test makes tables of its own, so tests run in
// any order, in parallel and against a server that already holds data. Expectations follow the comments of the
// published protocol buffers, not the behaviour of any particular emulator.
package suite

import (
	"context"
	"encoding/base64"
	"fmt"
	"io"
	"os"
	"sort"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"cloud.google.com/go/bigtable"
	"cloud.google.com/go/bigtable/admin/apiv2/adminpb"
	"cloud.google.com/go/bigtable/apiv2/bigtablepb"
	"google.golang.org/api/option"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
)

const (
	project  = "stele-project"
	instance = "stele-instance"
	// One call takes milliseconds; a minute means that something hangs.
	deadline = time.Minute
)

var (
	client   *bigtable.Client
	admin    *bigtable.AdminClient
	iadmin   *bigtable.InstanceAdminClient
	rawData  bigtablepb.BigtableClient
	rawAdmin adminpb.BigtableTableAdminClient
	rawInst  adminpb.BigtableInstanceAdminClient

	// The process id and start time keep names apart from those of earlier runs against the same server.
	runID    = fmt.Sprintf("%x-%x", os.Getpid(), time.Now().Unix()&0xffffff)
	sequence atomic.Int64
)

func TestMain(m *testing.M) {
	code, err := run(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, "set-up failed:", err)
		code = 1
	}
	os.Exit(code)
}

func run(m *testing.M) (int, error) {
	address := os.Getenv("STELE_ADDRESS")
	if address == "" {
		address = os.Getenv("BIGTABLE_EMULATOR_HOST")
	}
	if address == "" {
		return 1, fmt.Errorf("set STELE_ADDRESS to the server's Bigtable address")
	}
	os.Setenv("BIGTABLE_EMULATOR_HOST", address)
	ctx := context.Background()
	// The client wants whole rows in a message, yet in emulator mode it dials with gRPC's limit of 4 MiB: larger rows
	// need a connection of one's own.
	conn, err := grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(256<<20)))
	if err != nil {
		return 1, err
	}
	defer conn.Close()
	if client, err = bigtable.NewClient(ctx, project, instance, option.WithGRPCConn(conn)); err != nil {
		return 1, err
	}
	defer client.Close()
	if admin, err = bigtable.NewAdminClient(ctx, project, instance); err != nil {
		return 1, err
	}
	defer admin.Close()
	if iadmin, err = bigtable.NewInstanceAdminClient(ctx, project); err != nil {
		return 1, err
	}
	defer iadmin.Close()
	rawData = bigtablepb.NewBigtableClient(conn)
	rawAdmin = adminpb.NewBigtableTableAdminClient(conn)
	rawInst = adminpb.NewBigtableInstanceAdminClient(conn)
	return m.Run(), nil
}

func testContext(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), deadline)
	t.Cleanup(cancel)
	return ctx
}

// withFeatures says what a modern client says, so that the server may use last-scanned-row messages and take reversed
// scans.
func withFeatures(ctx context.Context, features *bigtablepb.FeatureFlags) context.Context {
	bytes, err := proto.Marshal(features)
	if err != nil {
		panic(err)
	}
	return metadata.AppendToOutgoingContext(ctx, "bigtable-features", base64.URLEncoding.EncodeToString(bytes))
}

func uniqueName(prefix string) string {
	return fmt.Sprintf("%s-%s-%d", prefix, runID, sequence.Add(1))
}

func instanceName() string { return "projects/" + project + "/instances/" + instance }

func fullName(table string) string { return instanceName() + "/tables/" + table }

// newTable makes a table and deletes it when the test is over.
func newTable(t *testing.T, families ...string) (string, *bigtable.Table) {
	t.Helper()
	conf := &bigtable.TableConf{TableID: uniqueName("t"), Families: map[string]bigtable.GCPolicy{}}
	for _, family := range families {
		conf.Families[family] = bigtable.NoGcPolicy()
	}
	return newTableFromConf(t, conf)
}

func newTableFromConf(t *testing.T, conf *bigtable.TableConf) (string, *bigtable.Table) {
	t.Helper()
	if err := admin.CreateTableFromConf(testContext(t), conf); err != nil {
		t.Fatalf("creating table %s: %v", conf.TableID, err)
	}
	t.Cleanup(func() {
		// Some tests delete the table themselves; the run's names are unique either way.
		_ = admin.DeleteTable(context.Background(), conf.TableID)
	})
	return conf.TableID, client.Open(conf.TableID)
}

// set applies `family:qualifier@micros=value` cells to one row.
func set(t *testing.T, table *bigtable.Table, row string, cells ...string) {
	t.Helper()
	mutation := bigtable.NewMutation()
	for _, cell := range cells {
		family, qualifier, micros, value := parseCell(t, cell)
		mutation.Set(family, qualifier, bigtable.Timestamp(micros), []byte(value))
	}
	apply(t, table, row, mutation)
}

func parseCell(t *testing.T, cell string) (family, qualifier string, micros int64, value string) {
	t.Helper()
	head, value, ok := strings.Cut(cell, "=")
	column, stamp, ok2 := strings.Cut(head, "@")
	family, qualifier, ok3 := strings.Cut(column, ":")
	if _, err := fmt.Sscanf(stamp, "%d", &micros); err != nil || !ok || !ok2 || !ok3 {
		t.Fatalf("bad cell %q", cell)
	}
	return family, qualifier, micros, value
}

func apply(t *testing.T, table *bigtable.Table, row string, mutation *bigtable.Mutation, opts ...bigtable.ApplyOption) {
	t.Helper()
	if err := table.Apply(testContext(t), row, mutation, opts...); err != nil {
		t.Fatalf("writing row %q: %v", row, err)
	}
}

// read returns rows in the order of arrival, one line each: `row f:q@micros=value[labels] …`. Families are sorted by
// name, because the protocol leaves their order open; within a family the server's order stands.
func read(t *testing.T, table *bigtable.Table, rows bigtable.RowSet, opts ...bigtable.ReadOption) []string {
	t.Helper()
	lines, err := tryRead(t, table, rows, opts...)
	if err != nil {
		t.Fatalf("reading: %v", err)
	}
	return lines
}

func tryRead(t *testing.T, table *bigtable.Table, rows bigtable.RowSet, opts ...bigtable.ReadOption) ([]string, error) {
	t.Helper()
	var lines []string
	err := table.ReadRows(testContext(t), rows, func(row bigtable.Row) bool {
		lines = append(lines, renderRow(row))
		return true
	}, opts...)
	return lines, err
}

func readAll(t *testing.T, table *bigtable.Table, opts ...bigtable.ReadOption) []string {
	t.Helper()
	return read(t, table, bigtable.InfiniteRange(""), opts...)
}

func renderRow(row bigtable.Row) string {
	var families []string
	for family := range row {
		families = append(families, family)
	}
	sort.Strings(families)
	line := row.Key()
	for _, family := range families {
		for _, item := range row[family] {
			line += fmt.Sprintf(" %s@%d=%s", item.Column, item.Timestamp, item.Value)
			if len(item.Labels) > 0 {
				line += "[" + strings.Join(item.Labels, ",") + "]"
			}
		}
	}
	return line
}

func wantLines(t *testing.T, got []string, want ...string) {
	t.Helper()
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("got\n  %s\nwant\n  %s", strings.Join(got, "\n  "), strings.Join(want, "\n  "))
	}
}

// wantCode accepts any of the given codes: a few answers are left open by the protocol's documentation.
func wantCode(t *testing.T, what string, err error, want ...codes.Code) {
	t.Helper()
	got := status.Code(err)
	for _, code := range want {
		if got == code {
			return
		}
	}
	t.Errorf("%s: got %v (%v), want %v", what, got, err, want)
}

// rawCell is one cell as the raw protocol delivers it.
type rawCell struct {
	row, family, qualifier string
	micros                 int64
	value                  []byte
	labels                 []string
}

func (c rawCell) String() string {
	line := fmt.Sprintf("%s %s:%s@%d=%s", c.row, c.family, c.qualifier, c.micros, c.value)
	if len(c.labels) > 0 {
		line += "[" + strings.Join(c.labels, ",") + "]"
	}
	return line
}

// rawRead reads without the client's help and enforces the chunk rules of bigtable.proto on the way.
func rawRead(ctx context.Context, request *bigtablepb.ReadRowsRequest) ([]rawCell, *bigtablepb.RequestStats, error) {
	stream, err := rawData.ReadRows(ctx, request)
	if err != nil {
		return nil, nil, err
	}
	reader := chunkReader{reversed: request.Reversed}
	var stats *bigtablepb.RequestStats
	for {
		response, err := stream.Recv()
		if err == io.EOF {
			return reader.cells, stats, nil
		}
		if err != nil {
			return reader.cells, stats, err
		}
		if stats != nil {
			return nil, nil, fmt.Errorf("a message after the one with request_stats")
		}
		stats = response.RequestStats
		for _, chunk := range response.Chunks {
			if err := reader.chunk(chunk); err != nil {
				return nil, nil, err
			}
		}
		// Stricter than the protocol, but what the Go client demands of each message.
		if err := reader.finish(); err != nil {
			return nil, nil, err
		}
	}
}

type chunkReader struct {
	reversed bool
	cells    []rawCell
	// Cells of the row in progress; it counts only once committed.
	row     []rawCell
	inRow   bool
	cell    rawCell
	inCell  bool
	lastRow string
	anyRow  bool
}

func (r *chunkReader) chunk(chunk *bigtablepb.ReadRowsResponse_CellChunk) error {
	if chunk.GetResetRow() {
		if !r.inRow {
			return fmt.Errorf("reset_row outside a row")
		}
		r.row, r.inRow, r.inCell = nil, false, false
		return nil
	}
	if !r.inCell {
		if err := r.startCell(chunk); err != nil {
			return err
		}
	}
	r.cell.value = append(r.cell.value, chunk.Value...)
	r.inCell = chunk.ValueSize > 0
	if r.inCell {
		if chunk.GetCommitRow() {
			return fmt.Errorf("commit_row in the middle of a cell")
		}
		return nil
	}
	r.row = append(r.row, r.cell)
	if chunk.GetCommitRow() {
		r.cells = append(r.cells, r.row...)
		r.lastRow, r.anyRow, r.inRow, r.row = r.cell.row, true, false, nil
	}
	return nil
}

func (r *chunkReader) startCell(chunk *bigtablepb.ReadRowsResponse_CellChunk) error {
	if !r.inRow {
		if len(chunk.RowKey) == 0 || chunk.FamilyName == nil || chunk.Qualifier == nil {
			return fmt.Errorf("the first chunk of a row lacks its key, family or qualifier")
		}
		key := string(chunk.RowKey)
		if r.anyRow && (key <= r.lastRow) != r.reversed || r.anyRow && key == r.lastRow {
			return fmt.Errorf("row %q after row %q", key, r.lastRow)
		}
		r.inRow, r.cell = true, rawCell{row: key}
	}
	if chunk.FamilyName != nil {
		if chunk.Qualifier == nil {
			return fmt.Errorf("a family without a qualifier")
		}
		r.cell.family = chunk.FamilyName.Value
	}
	if chunk.Qualifier != nil {
		r.cell.qualifier = string(chunk.Qualifier.Value)
	}
	r.cell.micros, r.cell.labels, r.cell.value = chunk.TimestampMicros, chunk.Labels, nil
	return nil
}

func (r *chunkReader) finish() error {
	if r.inRow {
		return fmt.Errorf("the message ended within row %q", r.cell.row)
	}
	return nil
}

// rawLines renders cells sorted, for answers in which the protocol leaves the order of families open.
func rawLines(cells []rawCell) []string {
	lines := make([]string, len(cells))
	for i, cell := range cells {
		lines[i] = cell.String()
	}
	sort.Strings(lines)
	return lines
}
