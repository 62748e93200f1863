package main

import (
	"context"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"cloud.google.com/go/bigtable"
)

// A call that takes longer than this is a failure of the server.
const callWait = 60 * time.Second

type fillResult struct {
	Rows    int     `json:"rows"`
	Bytes   int64   `json:"bytes"`
	Seconds float64 `json:"seconds"`
}

type measurement struct {
	Operations int     `json:"operations"`
	Errors     int64   `json:"errors"`
	Seconds    float64 `json:"seconds"`
	PerSecond  float64 `json:"per_second"`
	P50Micros  int64   `json:"p50_us"`
	P99Micros  int64   `json:"p99_us"`
	P999Micros int64   `json:"p999_us"`
	MaxMicros  int64   `json:"max_us"`
}

type countResult struct {
	Rows    int     `json:"rows"`
	Bytes   int64   `json:"bytes"`
	Seconds float64 `json:"seconds"`
}

// rowKey spreads consecutive numbers over the key space, as hashed keys do: the multiplier is odd, so no two collide.
func rowKey(n int) string {
	return fmt.Sprintf("%016x", uint64(n)*0x9e3779b97f4a7c15)
}

// randomValue cannot be compressed, so that volume on the wire is volume on disk.
func randomValue(random *rand.ChaCha8, length int) []byte {
	value := make([]byte, length)
	_, _ = random.Read(value)
	return value
}

func chacha(seed uint64, stream int) *rand.ChaCha8 {
	var key [32]byte
	binary.LittleEndian.PutUint64(key[:], seed)
	binary.LittleEndian.PutUint64(key[8:], uint64(stream))
	return rand.NewChaCha8(key)
}

func fill(ctx context.Context, table *bigtable.Table, s settings) (*fillResult, error) {
	start := time.Now()
	var next atomic.Int64
	var group sync.WaitGroup
	var first atomic.Pointer[error]
	// Bulk requests are large; as many callers as for single rows would only queue.
	for caller := range min(s.callers, 8) {
		random := chacha(s.seed, caller)
		group.Go(func() {
			for first.Load() == nil {
				from := int(next.Add(int64(s.batch))) - s.batch
				if from >= s.rows {
					return
				}
				if err := fillBatch(ctx, table, random, from, min(from+s.batch, s.rows), s.bytes); err != nil {
					first.CompareAndSwap(nil, &err)
				}
			}
		})
	}
	group.Wait()
	if err := first.Load(); err != nil {
		return nil, *err
	}
	seconds := time.Since(start).Seconds()
	return &fillResult{Rows: s.rows, Bytes: int64(s.rows) * int64(s.bytes), Seconds: seconds}, nil
}

func fillBatch(ctx context.Context, table *bigtable.Table, random *rand.ChaCha8, from, to, length int) error {
	ctx, cancel := context.WithTimeout(ctx, callWait)
	defer cancel()
	var keys []string
	var mutations []*bigtable.Mutation
	for n := from; n < to; n++ {
		mutation := bigtable.NewMutation()
		mutation.Set(family, column, 1000, randomValue(random, length))
		keys, mutations = append(keys, rowKey(n)), append(mutations, mutation)
	}
	failed, err := table.ApplyBulk(ctx, keys, mutations)
	if err != nil {
		return err
	}
	for _, err := range failed {
		if err != nil {
			return err
		}
	}
	return nil
}

type operation func(ctx context.Context, random *rand.ChaCha8) error

func writeOne(table *bigtable.Table, s settings) operation {
	return func(ctx context.Context, random *rand.ChaCha8) error {
		mutation := bigtable.NewMutation()
		mutation.Set(family, column, 1000, randomValue(random, s.bytes))
		return table.Apply(ctx, rowKey(int(random.Uint64()%uint64(s.rows))), mutation)
	}
}

func readOne(table *bigtable.Table, s settings) operation {
	return func(ctx context.Context, random *rand.ChaCha8) error {
		key := rowKey(int(random.Uint64() % uint64(s.rows)))
		row, err := table.ReadRow(ctx, key)
		if err == nil && len(row[family]) != 1 {
			err = fmt.Errorf("row %s has %d cells, want 1", key, len(row[family]))
		}
		return err
	}
}

// measure runs an operation from concurrent callers for the given time, after a tenth of it to warm up.
func measure(ctx context.Context, s settings, operation operation) (*measurement, error) {
	length := time.Duration(s.seconds) * time.Second
	start := time.Now().Add(length / 10)
	end := start.Add(length)
	var group sync.WaitGroup
	var failures atomic.Int64
	var firstError atomic.Pointer[error]
	latencies := make([][]int64, s.callers)
	for caller := range s.callers {
		random := chacha(s.seed+1, caller)
		group.Go(func() {
			for {
				began := time.Now()
				if began.After(end) {
					return
				}
				ctx, cancel := context.WithTimeout(ctx, callWait)
				err := operation(ctx, random)
				cancel()
				if err != nil {
					failures.Add(1)
					firstError.CompareAndSwap(nil, &err)
					// A dead server fails at once; do not spin.
					time.Sleep(10 * time.Millisecond)
				} else if began.After(start) {
					latencies[caller] = append(latencies[caller], time.Since(began).Microseconds())
				}
			}
		})
	}
	group.Wait()
	all := slices.Concat(latencies...)
	if len(all) == 0 {
		if err := firstError.Load(); err != nil {
			return nil, *err
		}
		return nil, fmt.Errorf("no operation finished in %v", length)
	}
	slices.Sort(all)
	at := func(quantile float64) int64 { return all[min(len(all)-1, int(float64(len(all))*quantile))] }
	return &measurement{
		Operations: len(all), Errors: failures.Load(), Seconds: length.Seconds(),
		PerSecond: float64(len(all)) / length.Seconds(),
		P50Micros: at(0.5), P99Micros: at(0.99), P999Micros: at(0.999), MaxMicros: all[len(all)-1],
	}, nil
}

func count(ctx context.Context, table *bigtable.Table) (*countResult, error) {
	start := time.Now()
	result := &countResult{}
	err := table.ReadRows(ctx, bigtable.InfiniteRange(""), func(row bigtable.Row) bool {
		result.Rows++
		for _, item := range row[family] {
			result.Bytes += int64(len(item.Value))
		}
		return true
	})
	result.Seconds = time.Since(start).Seconds()
	return result, err
}
