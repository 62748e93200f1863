package main

import (
	"math"
	"sort"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

const (
	// More violations than this say nothing new.
	violationsMax = 20
	// Classes of latency: each is 5 % wider than the one before, from 10 µs on.
	classes     = 400
	classGrowth = 1.05
	classFirst  = 10e-6
)

// window counts what happens between two commands.
type window struct {
	lock      sync.Mutex
	requests  int64
	errors    map[string]int64
	latencies [classes]int64
	slowest   time.Duration
	// By row, the completion before now and the longest time between two.
	last  []time.Time
	pause []time.Duration
}

// report is a window as it is told.
type report struct {
	Requests   int64            `json:"requests"`
	Errors     map[string]int64 `json:"errors"`
	P50Ms      float64          `json:"p50_ms"`
	P99Ms      float64          `json:"p99_ms"`
	P999Ms     float64          `json:"p999_ms"`
	MaxMs      float64          `json:"max_ms"`
	PauseP50Ms float64          `json:"pause_p50_ms"`
	PauseMaxMs float64          `json:"pause_max_ms"`
	Violations []string         `json:"violations"`
}

func newWindow(rows int) *window {
	w := &window{errors: map[string]int64{}, last: make([]time.Time, rows), pause: make([]time.Duration, rows)}
	now := time.Now()
	for row := range w.last {
		w.last[row] = now
	}
	return w
}

// took counts a request that was answered.
func (w *window) took(latency time.Duration) {
	class := int(math.Log(latency.Seconds()/classFirst) / math.Log(classGrowth))
	w.lock.Lock()
	defer w.lock.Unlock()
	w.requests++
	w.latencies[min(max(class, 0), classes-1)]++
	w.slowest = max(w.slowest, latency)
}

// failed counts a request that the client gave up.
func (w *window) failed(err error) {
	name := status.Code(err).String()
	if status.Code(err) == codes.Unknown {
		name = err.Error()
	}
	w.lock.Lock()
	defer w.lock.Unlock()
	w.requests++
	w.errors[name]++
}

// completed notes that a row was written and read just now.
func (w *window) completed(row int) {
	w.lock.Lock()
	defer w.lock.Unlock()
	now := time.Now()
	w.pause[row] = max(w.pause[row], now.Sub(w.last[row]))
	w.last[row] = now
}

// report ends the window: rows that are not available now have been unavailable until now.
func (w *window) report() *report {
	for row := range w.last {
		w.completed(row)
	}
	w.lock.Lock()
	defer w.lock.Unlock()
	pauses := append([]time.Duration{}, w.pause...)
	sort.Slice(pauses, func(a, b int) bool { return pauses[a] < pauses[b] })
	return &report{
		Requests: w.requests, Errors: w.errors,
		P50Ms: w.percentile(0.5), P99Ms: w.percentile(0.99), P999Ms: w.percentile(0.999), MaxMs: milliseconds(w.slowest),
		PauseP50Ms: milliseconds(pauses[len(pauses)/2]), PauseMaxMs: milliseconds(pauses[len(pauses)-1]),
	}
}

// percentile is the upper end of the class that holds this share of the answered requests.
func (w *window) percentile(share float64) float64 {
	var all, passed int64
	for _, count := range w.latencies {
		all += count
	}
	for class, count := range w.latencies {
		passed += count
		if passed > 0 && float64(passed) >= share*float64(all) {
			return 1e3 * classFirst * math.Pow(classGrowth, float64(class+1))
		}
	}
	return 0
}

func milliseconds(duration time.Duration) float64 {
	return float64(duration.Microseconds()) / 1e3
}
