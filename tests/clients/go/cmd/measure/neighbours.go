package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"cloud.google.com/go/bigtable"
)

const (
	// Tables of the neighbours: many small rows, and one row with a large cell.
	manyTable = "many"
	cellTable = "cell"
	// A slow reader takes a hundred rows a second.
	slowPause = 10 * time.Millisecond
)

// neighbour makes requests of another kind through the same client while operations are measured.
type neighbour struct {
	name string
	// One round; it reports what it has done.
	round func(ctx context.Context, did func()) error
	done  atomic.Int64
}

// neighboursOf are those of the flag -beside.
func neighboursOf(kind string, client *bigtable.Client) ([]*neighbour, error) {
	many, cell := client.Open(manyTable), client.Open(cellTable)
	switch kind {
	case "":
		return nil, nil
	case "scan":
		return []*neighbour{{name: "rows of scans", round: scanOf(many)}}, nil
	case "mixed":
		// No value has it, and every value must be searched.
		absent := bigtable.RowFilter(bigtable.ValueFilter(`\C*absent value\C*`))
		return []*neighbour{
			{name: "slow rows", round: slowReadOf(many)},
			{name: "large cells", round: largeReadOf(cell)},
			{name: "scans by regex", round: searchOf(many, absent)},
		}, nil
	default:
		return nil, fmt.Errorf("-beside scan or mixed, not %q", kind)
	}
}

func scanOf(table *bigtable.Table) func(context.Context, func()) error {
	return func(ctx context.Context, did func()) error {
		return table.ReadRows(ctx, bigtable.InfiniteRange(""), func(bigtable.Row) bool {
			did()
			return true
		})
	}
}

func searchOf(table *bigtable.Table, filter bigtable.ReadOption) func(context.Context, func()) error {
	return func(ctx context.Context, did func()) error {
		err := table.ReadRows(ctx, bigtable.InfiniteRange(""), func(bigtable.Row) bool { return true }, filter)
		if err == nil {
			did()
		}
		return err
	}
}

func slowReadOf(table *bigtable.Table) func(context.Context, func()) error {
	return func(ctx context.Context, did func()) error {
		return table.ReadRows(ctx, bigtable.InfiniteRange(""), func(bigtable.Row) bool {
			did()
			time.Sleep(slowPause)
			return ctx.Err() == nil
		})
	}
}

func largeReadOf(table *bigtable.Table) func(context.Context, func()) error {
	read := read(table, func(*rand.Rand) int { return 0 })
	return func(ctx context.Context, did func()) error {
		_, err := read(ctx, nil)
		if err == nil {
			did()
		}
		return err
	}
}

// beside runs something while the neighbours make requests, from when each has ended a round. It returns the rounds of each since then,
// and an error if one failed.
func beside(ctx context.Context, neighbours []*neighbour, run func()) (map[string]int64, error) {
	if len(neighbours) == 0 {
		run()
		return nil, nil
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var group sync.WaitGroup
	failures := make([]error, len(neighbours))
	// One for each: nil after its first round, or the reason for which there was none.
	begun := make(chan error, len(neighbours))
	for at, neighbour := range neighbours {
		group.Go(func() {
			var once sync.Once
			did := func() {
				neighbour.done.Add(1)
				once.Do(func() { begun <- nil })
			}
			for ctx.Err() == nil && failures[at] == nil {
				if err := neighbour.round(ctx, did); err != nil && ctx.Err() == nil {
					failures[at] = fmt.Errorf("%s: %w", neighbour.name, err)
					once.Do(func() { begun <- failures[at] })
				}
			}
		})
	}
	deadline := time.After(callWait)
	for range neighbours {
		select {
		case err := <-begun:
			if err != nil {
				return nil, err
			}
		case <-deadline:
			return nil, fmt.Errorf("not every neighbour has ended a round in %v", callWait)
		}
	}
	for _, neighbour := range neighbours {
		neighbour.done.Store(0)
	}
	run()
	rounds := map[string]int64{}
	for _, neighbour := range neighbours {
		rounds[neighbour.name] = neighbour.done.Load()
	}
	cancel()
	group.Wait()
	return rounds, errors.Join(failures...)
}

// alone makes the requests of neighbours between two lines: it prints "ready" when they are at work, and their rounds after the end.
func alone(ctx context.Context, neighbours []*neighbour) error {
	if len(neighbours) == 0 {
		return errors.New("neighbours need -beside")
	}
	rounds, err := beside(ctx, neighbours, func() {
		fmt.Println("ready")
		awaitLine()
	})
	if err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(rounds)
}
