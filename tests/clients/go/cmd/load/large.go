package main

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"time"

	pb "cloud.google.com/go/bigtable/apiv2/bigtablepb"
)

// Large values, of which each tells the write that made it. A file remembers the writes, so that the values can be compared after the
// server was killed, too.

const (
	// Rows of one caller, for one size of values.
	largeRowsPerCaller = 4
	// The number of the write, at the beginning of a value.
	largeNumberBytes = 8
	// More wrong rows than this say nothing new.
	wrongMax = 20
)

// errWrong is that of an answer that no writes explain.
var errWrong = errors.New("wrong answer")

// largeRow is a row that one caller writes.
type largeRow struct {
	Seed   uint64 `json:"seed"`
	Stream int    `json:"stream"`
	Bytes  int    `json:"bytes"`
	// The newest write that was acknowledged or read, and the newest one that was sent; zero is none.
	Known uint64 `json:"known"`
	Sent  uint64 `json:"sent"`
}

// largeRows are rows by their keys.
type largeRows map[string]*largeRow

// loadLargeRows reads the file; without one there are no rows.
func loadLargeRows(path string) (largeRows, error) {
	rows := largeRows{}
	if path == "" {
		return rows, nil
	}
	text, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		return rows, nil
	}
	if err != nil {
		return nil, err
	}
	return rows, json.Unmarshal(text, &rows)
}

func (rows largeRows) save(path string) error {
	if path == "" {
		return nil
	}
	text, err := json.Marshal(rows)
	if err != nil {
		return err
	}
	return os.WriteFile(path, text, 0o644)
}

// of is a row of a caller, made if it is new. Values of another size have rows of their own: a write that one run gives up may take effect in
// the next.
func (rows largeRows) of(s settings, caller, slot int) (string, *largeRow) {
	key := fmt.Sprintf("large-%d-%04d-%d", s.bytes, caller, slot)
	if rows[key] == nil {
		rows[key] = &largeRow{Seed: s.seed, Stream: caller*largeRowsPerCaller + slot, Bytes: s.bytes}
	}
	return key, rows[key]
}

// value is that of a write: its number, and bytes that no other write of this size has.
func (r *largeRow) value(number uint64) []byte {
	value := randomValue(chacha(r.Seed+number<<32, r.Stream), r.Bytes)
	binary.BigEndian.PutUint64(value, number)
	return value
}

// judge compares a value that was read, nil if there was none, with the writes that it may be of. A write that failed may have taken effect.
func (r *largeRow) judge(key string, found []byte) error {
	if found == nil && r.Known == 0 {
		return nil
	}
	if found == nil {
		return fmt.Errorf("%w: row %s is not there, and its write %d was acknowledged", errWrong, key, r.Known)
	}
	if len(found) != r.Bytes {
		return fmt.Errorf("%w: row %s has %d bytes, want %d", errWrong, key, len(found), r.Bytes)
	}
	number := binary.BigEndian.Uint64(found)
	if number < max(r.Known, 1) || number > r.Sent {
		return fmt.Errorf("%w: row %s has the value of write %d, want one of %d to %d", errWrong, key, number, r.Known, r.Sent)
	}
	if !bytes.Equal(found, r.value(number)) {
		return fmt.Errorf("%w: row %s has other bytes than write %d", errWrong, key, number)
	}
	r.Known = number
	return nil
}

// largeValues writes values of the given size and reads them back. Every caller has a few rows of its own.
func largeValues(ctx context.Context, address string, s settings) (*pressure, error) {
	if s.bytes < largeNumberBytes {
		return nil, fmt.Errorf("-bytes is at least %d: a value begins with a number", largeNumberBytes)
	}
	all, err := loadLargeRows(s.state)
	if err != nil {
		return nil, err
	}
	keys, rows := make([][largeRowsPerCaller]string, s.callers), make([][largeRowsPerCaller]*largeRow, s.callers)
	for caller := range rows {
		for slot := range rows[caller] {
			keys[caller][slot], rows[caller][slot] = all.of(s, caller, slot)
		}
	}
	connection, err := dial(address)
	if err != nil {
		return nil, err
	}
	defer connection.Close()
	client, result := pb.NewBigtableClient(connection), &pressure{}
	err = each(ctx, s, func(ctx context.Context, caller int) error {
		slot := rand.IntN(largeRowsPerCaller)
		key, row := keys[caller][slot], rows[caller][slot]
		row.Sent++
		// Applied once: the client repeats what is refused, and that is not what is watched.
		_, err := client.MutateRow(ctx, &pb.MutateRowRequest{
			TableName: tableName(s), RowKey: []byte(key),
			Mutations: []*pb.Mutation{{Mutation: &pb.Mutation_SetCell_{SetCell: &pb.Mutation_SetCell{
				FamilyName: family, ColumnQualifier: []byte(column), TimestampMicros: 1000, Value: row.value(row.Sent),
			}}}},
		})
		if err == nil {
			row.Known = row.Sent
		}
		if err := result.count(int64(s.bytes), err); err != nil {
			return err
		}
		found, err := readCell(ctx, client, tableName(s), key)
		if err == nil {
			err = row.judge(key, found)
		}
		return result.count(int64(len(found)), err)
	})
	return result, errors.Join(err, all.save(s.state))
}

// readCell reads a row of one cell: its value, or nil if there is no row.
func readCell(ctx context.Context, client pb.BigtableClient, table, key string) ([]byte, error) {
	stream, err := client.ReadRows(ctx, &pb.ReadRowsRequest{
		TableName: table, Rows: &pb.RowSet{RowKeys: [][]byte{[]byte(key)}},
	})
	if err != nil {
		return nil, err
	}
	var value []byte
	for {
		response, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return value, nil
		}
		if err != nil {
			return nil, err
		}
		for _, chunk := range response.Chunks {
			if chunk.GetResetRow() {
				value = nil
				continue
			}
			if value == nil {
				value = []byte{}
			}
			value = append(value, chunk.Value...)
		}
	}
}

// largeCheck tells how many rows had an acknowledged write, by the size of their values, and what is wrong.
type largeCheck struct {
	Rows  map[int]int `json:"rows"`
	Wrong []string    `json:"wrong"`
}

// checkLarge compares all rows of the file with those of a server.
func checkLarge(ctx context.Context, address string, s settings) (*largeCheck, error) {
	rows, err := loadLargeRows(s.state)
	if err != nil {
		return nil, err
	}
	connection, err := dial(address)
	if err != nil {
		return nil, err
	}
	defer connection.Close()
	client, result := pb.NewBigtableClient(connection), &largeCheck{Rows: map[int]int{}, Wrong: []string{}}
	for _, key := range slices.Sorted(maps.Keys(rows)) {
		found, err := readPatiently(ctx, client, tableName(s), key)
		if err != nil {
			return nil, fmt.Errorf("row %s: %w", key, err)
		}
		row := rows[key]
		if row.Known > 0 {
			result.Rows[row.Bytes]++
		}
		if err := row.judge(key, found); err != nil && len(result.Wrong) < wrongMax {
			result.Wrong = append(result.Wrong, err.Error())
		}
	}
	return result, nil
}

// readPatiently reads a row again while that is refused. One that is never answered is as good as lost.
func readPatiently(ctx context.Context, client pb.BigtableClient, table, key string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, callWait)
	defer cancel()
	for {
		found, err := readCell(ctx, client, table, key)
		if err == nil || !refusal(err) || ctx.Err() != nil {
			return found, err
		}
		time.Sleep(100 * time.Millisecond)
	}
}
