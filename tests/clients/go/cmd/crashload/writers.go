package main

import (
	"context"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"io"
	"log"
	"math/rand/v2"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"cloud.google.com/go/bigtable"
)

const (
	// Data columns of a row; a checksum column comes on top.
	columns = 4
	// A request that is not answered by then counts as unanswered. The server is usually dead at that point.
	requestWait = 5 * time.Second
	// Rows of one bulk request.
	bulkRows = 8
)

// runWriters runs until standard input ends, and returns how many requests were acknowledged.
func runWriters(
	ctx context.Context, table *bigtable.Table, journal *journal, known map[string]*row, workers int, seed uint64,
) int64 {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		cancel()
	}()
	var acknowledged atomic.Int64
	var group sync.WaitGroup
	for number := range workers {
		writer := newWriter(table, journal, known, number, seed)
		group.Go(func() {
			for ctx.Err() == nil {
				acknowledged.Add(writer.step(ctx))
			}
		})
	}
	group.Wait()
	return acknowledged.Load()
}

// writer owns the rows whose keys begin with its number.
type writer struct {
	table      *bigtable.Table
	journal    *journal
	number     int
	random     *rand.Rand
	keys       []string
	nextRow    int
	generation uint64
	// The count that a counter has at least; unanswered increments may have added more.
	counter uint64
	// The last count that it was told. It must not come again, and none below it.
	told uint64
}

func newWriter(table *bigtable.Table, journal *journal, known map[string]*row, number int, seed uint64) *writer {
	w := &writer{table: table, journal: journal, number: number, random: rand.New(rand.NewPCG(seed, uint64(number)))}
	// Rows and generations of earlier runs are continued, so that they get overwritten and deleted too.
	for {
		previous, ok := known[w.rowKey(w.nextRow)]
		if !ok {
			break
		}
		w.keys = append(w.keys, w.rowKey(w.nextRow))
		w.generation = max(w.generation, previous.acknowledged)
		for _, pending := range previous.pending {
			w.generation = max(w.generation, pending)
		}
		w.nextRow++
	}
	if previous, ok := known[w.counterKey()]; ok {
		w.counter, w.told = previous.acknowledged, previous.acknowledged
	}
	// Deleted rows are recorded as generation 0, so a generation must not come again: the clock keeps runs apart.
	w.generation = max(w.generation, uint64(time.Now().UnixMilli())<<20)
	return w
}

func (w *writer) rowKey(n int) string { return fmt.Sprintf("w%02d-%08d", w.number, n) }

func (w *writer) counterKey() string { return fmt.Sprintf("c%02d", w.number) }

// step does one random thing and returns how many rows were acknowledged.
func (w *writer) step(ctx context.Context) int64 {
	ctx, cancel := context.WithTimeout(ctx, requestWait)
	defer cancel()
	switch choice := w.random.IntN(100); {
	case choice < 10:
		return w.bulk(ctx)
	case choice < 15:
		return w.increment(ctx)
	case choice < 30 && len(w.keys) > 0:
		return w.put(ctx, w.keys[w.random.IntN(len(w.keys))])
	case choice < 37 && len(w.keys) > 0:
		return w.remove(ctx, w.keys[w.random.IntN(len(w.keys))])
	default:
		return w.put(ctx, w.newKey())
	}
}

func (w *writer) newKey() string {
	key := w.rowKey(w.nextRow)
	w.nextRow++
	w.keys = append(w.keys, key)
	return key
}

func (w *writer) put(ctx context.Context, key string) int64 {
	generation, mutation := w.content(key)
	w.journal.record('I', key, generation)
	if err := w.table.Apply(ctx, key, mutation); err != nil {
		return 0
	}
	w.journal.record('A', key, generation)
	return 1
}

func (w *writer) remove(ctx context.Context, key string) int64 {
	mutation := bigtable.NewMutation()
	mutation.DeleteRow()
	w.journal.record('I', key, absent)
	if err := w.table.Apply(ctx, key, mutation); err != nil {
		return 0
	}
	w.journal.record('A', key, absent)
	return 1
}

func (w *writer) bulk(ctx context.Context) int64 {
	var keys []string
	var mutations []*bigtable.Mutation
	var generations []uint64
	for range bulkRows {
		key := w.newKey()
		generation, mutation := w.content(key)
		w.journal.record('I', key, generation)
		keys, mutations, generations = append(keys, key), append(mutations, mutation), append(generations, generation)
	}
	failed, err := w.table.ApplyBulk(ctx, keys, mutations)
	if err != nil {
		return 0
	}
	var done int64
	for i, key := range keys {
		if failed == nil || failed[i] == nil {
			w.journal.record('A', key, generations[i])
			done++
		}
	}
	return done
}

func (w *writer) increment(ctx context.Context) int64 {
	rmw := bigtable.NewReadModifyWrite()
	rmw.Increment(family, "n", 1)
	w.journal.record('I', w.counterKey(), w.counter+1)
	answer, err := w.table.ApplyReadModifyWrite(ctx, w.counterKey(), rmw)
	if err != nil {
		// It may have counted or not; the next answer tells.
		w.counter++
		return 0
	}
	items := answer[family]
	if len(items) != 1 || len(items[0].Value) != 8 {
		log.Fatalf("an increment of %s was answered with %v", w.counterKey(), items)
	}
	w.counter = binary.BigEndian.Uint64(items[0].Value)
	// Written down as it is, it would make the reader forget that more had been acknowledged.
	if w.counter <= w.told {
		log.Fatalf("an increment of %s was told %d after %d", w.counterKey(), w.counter, w.told)
	}
	w.told = w.counter
	w.journal.record('A', w.counterKey(), w.counter)
	return 1
}

// content makes a whole new content of a row: it replaces whatever was there, and every cell carries the generation.
func (w *writer) content(key string) (uint64, *bigtable.Mutation) {
	w.generation++
	mutation := bigtable.NewMutation()
	mutation.DeleteRow()
	sum := crc32.NewIEEE()
	_, _ = sum.Write([]byte(key))
	for column := range columns {
		value := make([]byte, 8+w.random.IntN(1500))
		for at := 8; at < len(value); at++ {
			value[at] = byte(w.random.Uint32())
		}
		binary.BigEndian.PutUint64(value, w.generation)
		_, _ = sum.Write(value)
		mutation.Set(family, fmt.Sprintf("d%d", column), 1000, value)
	}
	mutation.Set(family, "sum", 1000, sum.Sum(binary.BigEndian.AppendUint64(nil, w.generation)))
	return w.generation, mutation
}
