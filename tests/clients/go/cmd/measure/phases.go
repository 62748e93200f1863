package main

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"cloud.google.com/go/bigtable"
)

const (
	family = "f"
	column = "q"
	// Every write of a cell has the same timestamp, so that all servers keep one version whatever the pace of their
	// garbage collection.
	timestamp = bigtable.Timestamp(1000)
	// Rows of a bulk request, and of a scan.
	batchRows = 100
	scanRows  = 1000
	// Bulk requests of large values stay below the limits of servers on messages.
	batchBytes = 1 << 20
	// As in the core workloads of YCSB.
	zipfExponent = 0.99
)

func phaseOf(name string, table *bigtable.Table, s settings) (operation, error) {
	uniform := func(random *rand.Rand) int { return random.IntN(s.rows) }
	switch name {
	case "read":
		return read(table, uniform), nil
	case "zipf":
		return read(table, newZipf(s.rows, zipfExponent).next), nil
	case "write":
		return write(table, s, uniform), nil
	case "mix":
		read, write := read(table, uniform), write(table, s, uniform)
		return func(ctx context.Context, random *rand.Rand) (int, error) {
			if random.IntN(10) < 7 {
				return read(ctx, random)
			}
			return write(ctx, random)
		}, nil
	case "increment":
		return increment(table, uniform), nil
	case "batch":
		return batch(table, s, uniform), nil
	case "scan":
		return scan(table, uniform), nil
	default:
		return nil, fmt.Errorf("unknown phase %q", name)
	}
}

type chooser func(random *rand.Rand) int

// rowKey spreads consecutive numbers over the key space, as hashed keys do: the multiplier is odd, so no two collide.
func rowKey(n int) string {
	return fmt.Sprintf("%016x", uint64(n)*0x9e3779b97f4a7c15)
}

// value cannot be compressed, so that volume on the wire is volume on disk.
func value(random *rand.Rand, length int) []byte {
	value := make([]byte, length+7)
	for at := 0; at < length; at += 8 {
		binary.LittleEndian.PutUint64(value[at:], random.Uint64())
	}
	return value[:length]
}

func put(random *rand.Rand, length int) *bigtable.Mutation {
	mutation := bigtable.NewMutation()
	mutation.Set(family, column, timestamp, value(random, length))
	return mutation
}

func read(table *bigtable.Table, choose chooser) operation {
	return func(ctx context.Context, random *rand.Rand) (int, error) {
		key := rowKey(choose(random))
		row, err := table.ReadRow(ctx, key)
		// A row that is absent is no error to the client, but all of them are there.
		if err == nil && len(row[family]) != 1 {
			err = fmt.Errorf("row %s has %d cells, want 1", key, len(row[family]))
		}
		return 1, err
	}
}

func write(table *bigtable.Table, s settings, choose chooser) operation {
	return func(ctx context.Context, random *rand.Rand) (int, error) {
		return 1, table.Apply(ctx, rowKey(choose(random)), put(random, s.valueBytes))
	}
}

func increment(table *bigtable.Table, choose chooser) operation {
	return func(ctx context.Context, random *rand.Rand) (int, error) {
		change := bigtable.NewReadModifyWrite()
		change.Increment(family, "n", 1)
		row, err := table.ApplyReadModifyWrite(ctx, rowKey(choose(random)), change)
		if err == nil && len(row[family]) != 1 {
			err = fmt.Errorf("an increment gave %d cells, want 1", len(row[family]))
		}
		return 1, err
	}
}

func batch(table *bigtable.Table, s settings, choose chooser) operation {
	return func(ctx context.Context, random *rand.Rand) (int, error) {
		return batchRows, applyBulk(ctx, table, batchRows, func(int) (string, *bigtable.Mutation) {
			return rowKey(choose(random)), put(random, s.valueBytes)
		})
	}
}

func applyBulk(ctx context.Context, table *bigtable.Table, rows int, row func(int) (string, *bigtable.Mutation)) error {
	keys, mutations := make([]string, rows), make([]*bigtable.Mutation, rows)
	for n := range rows {
		keys[n], mutations[n] = row(n)
	}
	failed, err := table.ApplyBulk(ctx, keys, mutations)
	return errors.Join(append(failed, err)...)
}

func scan(table *bigtable.Table, choose chooser) operation {
	return func(ctx context.Context, random *rand.Rand) (int, error) {
		rows := 0
		err := table.ReadRows(ctx, bigtable.InfiniteRange(rowKey(choose(random))), func(bigtable.Row) bool {
			rows++
			return true
		}, bigtable.LimitRows(scanRows))
		if err == nil && rows == 0 {
			err = errors.New("a scan gave no row, not even the first")
		}
		return rows, err
	}
}

// fill writes every row once, from few callers: bulk requests are large, and more of them would only queue.
func fill(ctx context.Context, table *bigtable.Table, s settings) error {
	start := time.Now()
	size := max(1, min(batchRows, batchBytes/max(1, s.valueBytes)))
	var next atomic.Int64
	var group sync.WaitGroup
	failures := make([]error, min(s.callers, 8))
	for caller := range failures {
		random := rand.New(chacha(s.seed, caller))
		group.Go(func() {
			for failures[caller] == nil {
				from := int(next.Add(int64(size))) - size
				if from >= s.rows {
					return
				}
				failures[caller] = fillBatch(ctx, table, random, from, min(size, s.rows-from), s.valueBytes)
			}
		})
	}
	group.Wait()
	if err := errors.Join(failures...); err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(map[string]any{
		"rows": s.rows, "bytes": s.rows * s.valueBytes, "seconds": time.Since(start).Seconds(),
	})
}

func fillBatch(ctx context.Context, table *bigtable.Table, random *rand.Rand, from, rows, valueBytes int) error {
	ctx, cancel := context.WithTimeout(ctx, callWait)
	defer cancel()
	return applyBulk(ctx, table, rows, func(n int) (string, *bigtable.Mutation) {
		return rowKey(from + n), put(random, valueBytes)
	})
}

// zipf chooses numbers by the distribution of that name with an exponent below 1, which math/rand does not have. The
// method is that of Gray et al., "Quickly Generating Billion-Record Synthetic Databases", as in YCSB. Rank is number:
// rowKey scatters neighbouring numbers.
type zipf struct {
	count, theta, alpha, zeta, eta float64
}

func newZipf(count int, theta float64) *zipf {
	zeta := func(count int) (sum float64) {
		for n := 1; n <= count; n++ {
			sum += math.Pow(float64(n), -theta)
		}
		return sum
	}
	z := &zipf{count: float64(count), theta: theta, alpha: 1 / (1 - theta), zeta: zeta(count)}
	z.eta = (1 - math.Pow(2/z.count, 1-theta)) / (1 - zeta(2)/z.zeta)
	return z
}

func (z *zipf) next(random *rand.Rand) int {
	uniform := random.Float64()
	scaled := uniform * z.zeta
	switch {
	case scaled < 1:
		return 0
	case scaled < 1+math.Pow(0.5, z.theta):
		return min(1, int(z.count)-1)
	default:
		return min(int(z.count)-1, int(z.count*math.Pow(z.eta*uniform-z.eta+1, z.alpha)))
	}
}
