package main

import (
	"context"
	"errors"
	"maps"
	"path/filepath"
	"strings"
	"testing"

	"cloud.google.com/go/bigtable"
	"cloud.google.com/go/bigtable/apiv2/bigtablepb"
	"cloud.google.com/go/bigtable/bttest"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// liar changes the answers to reads, or refuses them.
type liar struct {
	grpc.ServerStream
	lie func(*bigtablepb.ReadRowsResponse) error
}

func (l *liar) SendMsg(message any) error {
	if response, ok := message.(*bigtablepb.ReadRowsResponse); ok && l.lie != nil {
		if err := l.lie(response); err != nil {
			return err
		}
	}
	return l.ServerStream.SendMsg(message)
}

// start starts Google's emulator with the table of these settings.
func start(t *testing.T, s settings, lie func(*bigtablepb.ReadRowsResponse) error) string {
	intercept := func(service any, stream grpc.ServerStream, _ *grpc.StreamServerInfo, handle grpc.StreamHandler) error {
		return handle(service, &liar{stream, lie})
	}
	server, err := bttest.NewServer("127.0.0.1:0", grpc.StreamInterceptor(intercept))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.Close)
	t.Setenv("BIGTABLE_EMULATOR_HOST", server.Addr)
	if err := ensureTable(t.Context(), s.table); err != nil {
		t.Fatal(err)
	}
	return server.Addr
}

func largeSettings(t *testing.T) settings {
	return settings{table: "large", bytes: 1000, callers: 2, seconds: 1, seed: 1, state: filepath.Join(t.TempDir(), "state")}
}

// change alters a copy of the first value: the emulator sends its own.
func change(response *bigtablepb.ReadRowsResponse) error {
	for _, chunk := range response.Chunks {
		chunk.Value = append([]byte{}, chunk.Value...)
		chunk.Value[len(chunk.Value)-1]++
	}
	return nil
}

func fillTable(ctx context.Context, s settings) error {
	client, err := bigtable.NewClient(ctx, project, instance)
	if err != nil {
		return err
	}
	defer client.Close()
	_, err = fill(ctx, client.Open(s.table), s)
	return err
}

func TestLargeValuesAreFoundAgain(t *testing.T) {
	s := largeSettings(t)
	address := start(t, s, nil)
	for _, s.bytes = range []int{1000, 2000, 1000} {
		result, err := largeValues(t.Context(), address, s)
		if err != nil || result.Done == 0 {
			t.Fatalf("%+v, %v", result, err)
		}
	}
	checked, err := checkLarge(t.Context(), address, s)
	if err != nil || checked.Rows[1000] == 0 || checked.Rows[2000] == 0 || len(checked.Wrong) > 0 {
		t.Fatalf("%+v, %v", checked, err)
	}
	rows := checked.Rows
	// Another server has none of them.
	checked, err = checkLarge(t.Context(), start(t, s, nil), s)
	if err != nil || !maps.Equal(checked.Rows, rows) || len(checked.Wrong) != rows[1000]+rows[2000] {
		t.Fatalf("%+v, %v", checked, err)
	}
}

func TestAChangedLargeValueIsSeen(t *testing.T) {
	s := largeSettings(t)
	if _, err := largeValues(t.Context(), start(t, s, change), s); !errors.Is(err, errWrong) {
		t.Fatalf("no wrong answer: %v", err)
	}
}

func TestALargeValueIsOfAWriteThatMayShow(t *testing.T) {
	row := largeRow{Seed: 1, Bytes: 100, Known: 3, Sent: 5}
	for number, wrong := range map[uint64]string{2: "write 2", 3: "", 5: "", 6: "write 6"} {
		row := row
		err := row.judge("r", row.value(number))
		if (wrong == "") != (err == nil) || (err != nil && !strings.Contains(err.Error(), wrong)) {
			t.Errorf("write %d: %v", number, err)
		}
	}
	if row.judge("r", row.value(4)) != nil || row.Known != 4 {
		t.Error("a value that was read stays")
	}
	if row.judge("r", nil) == nil || row.judge("r", row.value(4)[:99]) == nil {
		t.Error("a missing row and a short value are wrong")
	}
	if unknown := (&largeRow{Seed: 1, Bytes: 100, Sent: 1}); unknown.judge("r", nil) != nil || unknown.judge("r", unknown.value(1)) != nil {
		t.Error("a write that failed may show or not")
	}
}

func TestConnectTellsErrors(t *testing.T) {
	s := settings{table: "load", callers: 3}
	if result, err := connect(t.Context(), start(t, s, nil), s); err != nil || result.Done != 3 {
		t.Fatalf("%+v, %v", result, err)
	}
	// Without rows there is no answer to change.
	s.rows, s.bytes, s.batch = 10, 10, 10
	refuse := func(*bigtablepb.ReadRowsResponse) error { return status.Error(codes.Internal, "broken") }
	address := start(t, s, refuse)
	if err := fillTable(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	if _, err := connect(t.Context(), address, s); status.Code(err) != codes.Internal {
		t.Fatalf("another error: %v", err)
	}
}
