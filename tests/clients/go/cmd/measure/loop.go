package main

import (
	"context"
	"encoding/binary"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// operation does one thing to random rows and returns the number of rows.
type operation func(ctx context.Context, random *rand.Rand) (int, error)

type outcome struct {
	latencies  []time.Duration
	rows       int64
	errors     int64
	firstError error
	elapsed    time.Duration
}

type result struct {
	Operations int     `json:"operations"`
	Rows       int64   `json:"rows"`
	Errors     int64   `json:"errors"`
	Seconds    float64 `json:"seconds"`
	PerSecond  float64 `json:"per_second"`
	P50Micros  int64   `json:"p50_us"`
	P99Micros  int64   `json:"p99_us"`
	P999Micros int64   `json:"p999_us"`
	MaxMicros  int64   `json:"max_us"`
	// What other requests did meanwhile.
	Neighbours map[string]int64 `json:"neighbours,omitempty"`
}

// loop runs an operation from concurrent callers for the given time, and waits for the last one.
func loop(ctx context.Context, s settings, operation operation) *outcome {
	total := &outcome{}
	start := time.Now()
	length := time.Duration(s.seconds * float64(time.Second))
	due := schedule(start, length, s.rate)
	var group sync.WaitGroup
	var lock sync.Mutex
	for caller := range s.callers {
		random := rand.New(chacha(s.seed, caller))
		group.Go(func() {
			own := &outcome{}
			for {
				began, more := due()
				if !more {
					break
				}
				own.one(ctx, began, random, operation, s.rate == 0)
			}
			lock.Lock()
			defer lock.Unlock()
			total.add(own)
		})
	}
	group.Wait()
	total.elapsed = time.Since(start)
	return total
}

// schedule returns a function that gives the time from which the next operation counts, having waited for it.
func schedule(start time.Time, length time.Duration, rate float64) func() (time.Time, bool) {
	if rate == 0 {
		return func() (time.Time, bool) {
			now := time.Now()
			return now, now.Sub(start) < length
		}
	}
	var next atomic.Int64
	return func() (time.Time, bool) {
		offset := time.Duration(float64(next.Add(1)-1) / rate * float64(time.Second))
		due := start.Add(offset)
		time.Sleep(time.Until(due))
		return due, offset < length
	}
}

func (o *outcome) one(ctx context.Context, began time.Time, random *rand.Rand, operation operation, closed bool) {
	ctx, cancel := context.WithTimeout(ctx, callWait)
	rows, err := operation(ctx, random)
	cancel()
	if err == nil {
		o.latencies = append(o.latencies, time.Since(began))
		o.rows += int64(rows)
		return
	}
	o.errors++
	if o.firstError == nil {
		o.firstError = err
	}
	if closed {
		// A dead server fails at once; do not spin.
		time.Sleep(10 * time.Millisecond)
	}
}

func (o *outcome) add(other *outcome) {
	o.latencies = append(o.latencies, other.latencies...)
	o.rows += other.rows
	o.errors += other.errors
	if o.firstError == nil {
		o.firstError = other.firstError
	}
}

func (o *outcome) result() result {
	slices.Sort(o.latencies)
	count := len(o.latencies)
	at := func(quantile float64) int64 {
		if count == 0 {
			return 0
		}
		return o.latencies[min(count-1, int(float64(count)*quantile))].Microseconds()
	}
	return result{
		Operations: count, Rows: o.rows, Errors: o.errors, Seconds: o.elapsed.Seconds(),
		PerSecond: float64(count) / o.elapsed.Seconds(),
		P50Micros: at(0.5), P99Micros: at(0.99), P999Micros: at(0.999), MaxMicros: at(1),
	}
}

func chacha(seed uint64, stream int) *rand.ChaCha8 {
	var key [32]byte
	binary.LittleEndian.PutUint64(key[:], seed)
	binary.LittleEndian.PutUint64(key[8:], uint64(stream))
	return rand.NewChaCha8(key)
}
