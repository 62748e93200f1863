package main

import (
	"context"
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

// judge compares a number with those that the row may have had at any moment between two.
func (h *history) judge(number uint64, from, to time.Time) error {
	h.lock.Lock()
	defer h.lock.Unlock()
	if number > uint64(len(h.writes)) {
		return fmt.Errorf("it has %d, and %d is the last one sent", number, len(h.writes))
	}
	if number > 0 {
		if sent := h.writes[number-1].sent; sent.After(to) {
			return fmt.Errorf("it has %d, which was sent %v later", number, sent.Sub(to))
		}
	}
	for missing, write := range h.writes[number:] {
		if !write.answered.IsZero() && write.answered.Before(from) {
			return fmt.Errorf("it has %d and lacks %d, which was answered %v before", number, number+1+uint64(missing), from.Sub(write.answered))
		}
	}
	return nil
}

// bounds are the times that a moment with this number lies between: it was sent, and the next one was not answered, which may be never.
func (h *history) bounds(number uint64) (after, before time.Time) {
	h.lock.Lock()
	defer h.lock.Unlock()
	if number > 0 {
		after = h.writes[number-1].sent
	}
	for _, write := range h.writes[number:] {
		if !write.answered.IsZero() {
			return after, write.answered
		}
	}
	return after, time.Time{}
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
	return t.compare(ctx, name, at.Add(-clocksDiffer), at.Add(clocksDiffer), false)
}

// between compares the rows of a table, named first, with those of any moment between two in microseconds. With "whole" it must be one for
// all rows.
func (t *test) between(ctx context.Context, argument string) (any, error) {
	words := strings.Fields(argument)
	if len(words) < 3 {
		return nil, fmt.Errorf("between TABLE FROM TO [whole]: %q", argument)
	}
	var times [2]time.Time
	for at := range times {
		micros, err := strconv.ParseInt(words[1+at], 10, 64)
		if err != nil {
			return nil, err
		}
		times[at] = time.UnixMicro(micros)
	}
	// The caller rounds down.
	return t.compare(ctx, words[0], times[0], times[1].Add(time.Microsecond), len(words) > 3)
}

func (t *test) compare(ctx context.Context, name string, from, to time.Time, whole bool) (any, error) {
	found := map[string]uint64{}
	for _, register := range t.registers {
		found[register.key] = 0
	}
	if err := t.readAll(ctx, name, found); err != nil {
		return nil, err
	}
	violations, rows := []string{}, 0
	after, before := time.Time{}, to
	for _, register := range t.registers {
		number := found[register.key]
		if number > 0 {
			rows++
		}
		if err := register.history.judge(number, from, to); err != nil {
			if len(violations) < violationsMax {
				violations = append(violations, fmt.Sprintf("row %s of %s: %v", register.key, name, err))
			}
			continue
		}
		first, last := register.history.bounds(number)
		if first.After(after) {
			after = first
		}
		if !last.IsZero() && last.Before(before) {
			before = last
		}
	}
	if whole && after.After(before) {
		violations = append(violations, fmt.Sprintf("the rows of %s are of no one moment: %v lie between", name, after.Sub(before)))
	}
	return map[string]any{"rows": rows, "violations": violations}, nil
}

// readAll reads the numbers of these rows of a table. It may have others, which fill it.
func (t *test) readAll(ctx context.Context, name string, found map[string]uint64) error {
	if t.registers[0].history == nil {
		return errors.New("the program remembers no history: start it with -history")
	}
	ctx, cancel := context.WithTimeout(ctx, setupWait)
	defer cancel()
	server := t.servers.any()
	var wrong error
	add := func(row bigtable.Row) bool {
		if _, wanted := found[row.Key()]; !wanted {
			return true
		}
		found[row.Key()], wrong = t.answer(row)
		return wrong == nil
	}
	err := server.client.Open(name).ReadRows(ctx, bigtable.InfiniteRange(""), add, bigtable.RowFilter(bigtable.LatestNFilter(1)))
	return errors.Join(err, wrong)
}
