package main

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"cloud.google.com/go/bigtable"
)

// Clocks of this machine are one. That of a server may be ahead of it by the times of other servers, which are read and noted within this time.
const clocksDiffer = 20 * time.Millisecond

// history is the writes of one row: the write of number N is at N-1. A nil one remembers nothing.
type history struct {
	lock   sync.Mutex
	writes []write
}

// write is the time in which a write took effect, if it did.
type write struct {
	sent     time.Time
	answered time.Time
}

func (h *history) sent(at time.Time) {
	if h == nil {
		return
	}
	h.lock.Lock()
	defer h.lock.Unlock()
	h.writes = append(h.writes, write{sent: at})
}

// answered ends the last write. One that failed may take effect at any time, or never.
func (h *history) answered(err error) {
	if h == nil || err != nil {
		return
	}
	h.lock.Lock()
	defer h.lock.Unlock()
	h.writes[len(h.writes)-1].answered = time.Now()
}

// judge compares a number with those that the row may have had at a moment.
func (h *history) judge(number uint64, at time.Time) error {
	h.lock.Lock()
	defer h.lock.Unlock()
	if number > uint64(len(h.writes)) {
		return fmt.Errorf("it has %d, and %d is the last one sent", number, len(h.writes))
	}
	if number > 0 {
		if sent := h.writes[number-1].sent; sent.After(at.Add(clocksDiffer)) {
			return fmt.Errorf("it has %d, which was sent %v later", number, sent.Sub(at))
		}
	}
	for missing, write := range h.writes[number:] {
		if !write.answered.IsZero() && write.answered.Before(at.Add(-clocksDiffer)) {
			return fmt.Errorf("it has %d and lacks %d, which was answered %v before", number, number+1+uint64(missing), at.Sub(write.answered))
		}
	}
	return nil
}

// remember begins the histories, before the first write.
func (t *test) remember() {
	for _, register := range t.registers {
		register.history = &history{}
	}
}

// moment compares the rows of a table, named first, with those of a moment in microseconds.
func (t *test) moment(ctx context.Context, argument string) (any, error) {
	name, text, _ := strings.Cut(argument, " ")
	micros, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return nil, err
	}
	at := time.UnixMicro(micros)
	found := map[string]uint64{}
	if err := t.readAll(ctx, name, found); err != nil {
		return nil, err
	}
	violations, rows := []string{}, 0
	for _, register := range t.registers {
		number := found[register.key]
		if number > 0 {
			rows++
		}
		if err := register.history.judge(number, at); err != nil && len(violations) < violationsMax {
			violations = append(violations, fmt.Sprintf("row %s of %s: %v", register.key, name, err))
		}
	}
	return map[string]any{"rows": rows, "violations": violations}, nil
}

// readAll reads the numbers of all rows of a table.
func (t *test) readAll(ctx context.Context, name string, found map[string]uint64) error {
	if t.registers[0].history == nil {
		return errors.New("the program remembers no history: start it with -history")
	}
	ctx, cancel := context.WithTimeout(ctx, setupWait)
	defer cancel()
	server := t.servers.any()
	add := func(row bigtable.Row) bool {
		for _, cell := range row[family] {
			found[row.Key()] = binary.BigEndian.Uint64(cell.Value)
		}
		return true
	}
	return server.client.Open(name).ReadRows(ctx, bigtable.InfiniteRange(""), add, bigtable.RowFilter(bigtable.LatestNFilter(1)))
}
