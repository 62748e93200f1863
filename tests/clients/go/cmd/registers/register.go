package main

import (
	"fmt"
	"sync/atomic"
)

// register is what is known of one row. All of it only grows.
type register struct {
	key string
	// The last number that was sent, before it was sent.
	sent atomic.Uint64
	// The highest number that an answered write or read has shown.
	shown atomic.Uint64
	// All writes, or nil.
	history *history
}

// show remembers that every later read must return this number at least.
func (r *register) show(number uint64) {
	for {
		shown := r.shown.Load()
		if number <= shown || r.shown.CompareAndSwap(shown, number) {
			return
		}
	}
}

// judge compares an answer with the state when its request began. It must be called after the answer came.
func (r *register) judge(answer, shownBefore uint64) error {
	if answer < shownBefore {
		return fmt.Errorf("row %s: a read returned %d after %d had been shown", r.key, answer, shownBefore)
	}
	if sent := r.sent.Load(); answer > sent {
		return fmt.Errorf("row %s: a read returned %d, but %d is the last one sent", r.key, answer, sent)
	}
	r.show(answer)
	return nil
}
