package main

import (
	"context"
	"crypto/rand"
	"fmt"
	random "math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"cloud.google.com/go/bigtable"
)

const (
	// The client repeats a request until then. A request that takes longer counts as an error.
	requestWait = 30 * time.Second
	// Rows that fill a log.
	fillBytes = 10 << 10
	fillBatch = 50
	fillers   = 8
)

// test is a run: its rows, and the window of now.
type test struct {
	servers   *servers
	registers []*register
	tablets   int
	planted   bool
	// Keeps the writers from filling the machine: pauses are measured, not throughput.
	pace time.Duration
	// Bytes of each value.
	valueBytes int
	window     atomic.Pointer[window]

	lock       sync.Mutex
	violations []string
}

func newTest(servers *servers, rows, tablets int) *test {
	t := &test{servers: servers, tablets: tablets, violations: []string{}}
	for row := range rows {
		key := fmt.Sprintf("%s-r%05d", prefixOf(row%tablets), row)
		t.registers = append(t.registers, &register{key: key})
	}
	t.window.Store(newWindow(rows))
	return t
}

func (t *test) begin() {
	t.window.Store(newWindow(len(t.registers)))
}

func (t *test) end() *report {
	report := t.window.Load().report()
	t.lock.Lock()
	defer t.lock.Unlock()
	report.Violations = append([]string{}, t.violations...)
	return report
}

// start starts the writers and readers; they go on until the program ends.
func (t *test) start(ctx context.Context, readers int) {
	for row := range t.registers {
		go t.writer(ctx, row)
	}
	for range readers {
		go func() {
			for {
				t.read(ctx, t.registers[random.IntN(len(t.registers))])
				time.Sleep(t.pace)
			}
		}()
	}
}

// writer counts in one row, and reads each number back through another connection.
func (t *test) writer(ctx context.Context, row int) {
	register := t.registers[row]
	for number := uint64(1); ; number++ {
		if t.write(ctx, register, number) && t.read(ctx, register) {
			t.window.Load().completed(row)
		}
		time.Sleep(t.pace)
	}
}

// write sends a number with a timestamp that grows with it, so that repeating the request is harmless.
func (t *test) write(ctx context.Context, register *register, number uint64) bool {
	ctx, cancel := context.WithTimeout(ctx, requestWait)
	defer cancel()
	mutation := bigtable.NewMutation()
	mutation.Set(family, column, bigtable.Timestamp(number*1000), valueOf(number, t.valueBytes))
	register.sent.Store(number)
	start := time.Now()
	register.history.sent(start)
	err := t.servers.try(ctx, func(ctx context.Context, table *bigtable.Table) error {
		return table.Apply(ctx, register.key, mutation)
	})
	register.history.answered(err)
	if err != nil {
		t.window.Load().failed(err)
		return false
	}
	t.window.Load().took(time.Since(start))
	register.show(number)
	return true
}

func (t *test) read(ctx context.Context, register *register) bool {
	ctx, cancel := context.WithTimeout(ctx, requestWait)
	defer cancel()
	before := register.shown.Load()
	start := time.Now()
	var row bigtable.Row
	err := t.servers.try(ctx, func(ctx context.Context, table *bigtable.Table) (err error) {
		row, err = table.ReadRow(ctx, register.key, bigtable.RowFilter(bigtable.LatestNFilter(1)))
		return err
	})
	if err != nil {
		t.window.Load().failed(err)
		return false
	}
	t.window.Load().took(time.Since(start))
	answer, err := t.answer(row)
	if t.planted && answer > 2 {
		answer -= 2
	}
	if err == nil {
		err = register.judge(answer, before)
	}
	if err != nil {
		t.lock.Lock()
		defer t.lock.Unlock()
		if len(t.violations) < violationsMax {
			t.violations = append(t.violations, err.Error())
		}
	}
	return true
}

// answer is the number of a row, zero if it has none.
func (t *test) answer(row bigtable.Row) (number uint64, err error) {
	for _, cell := range row[family] {
		if number, err = numberOf(cell.Value, t.valueBytes); err != nil {
			return 0, fmt.Errorf("row %s: %w", row.Key(), err)
		}
	}
	return number, nil
}

// fill writes rows that do not compress, in turn to each tablet.
func (t *test) fill(ctx context.Context, mebibytes int) error {
	batches := mebibytes << 20 / fillBytes / fillBatch
	results := make(chan error, fillers)
	var next atomic.Int64
	for range fillers {
		go func() {
			for {
				batch := int(next.Add(1))
				if batch > batches {
					results <- nil
					return
				}
				if err := t.fillBatch(ctx, batch); err != nil {
					results <- err
					return
				}
			}
		}()
	}
	var failure error
	for range fillers {
		if err := <-results; err != nil {
			failure = err
		}
	}
	return failure
}

func (t *test) fillBatch(ctx context.Context, batch int) error {
	ctx, cancel := context.WithTimeout(ctx, requestWait)
	defer cancel()
	var keys []string
	var mutations []*bigtable.Mutation
	for number := range fillBatch {
		value := make([]byte, fillBytes)
		_, _ = rand.Read(value)
		mutation := bigtable.NewMutation()
		mutation.Set(family, column, bigtable.Timestamp(1000), value)
		keys = append(keys, fmt.Sprintf("%s-f%08d-%03d", prefixOf(batch%t.tablets), random.Uint32()%1e8, number))
		mutations = append(mutations, mutation)
	}
	var failures []error
	err := t.servers.try(ctx, func(ctx context.Context, table *bigtable.Table) (err error) {
		failures, err = table.ApplyBulk(ctx, keys, mutations)
		return err
	})
	if err != nil {
		return err
	}
	for _, failure := range failures {
		if failure != nil {
			return failure
		}
	}
	return nil
}
