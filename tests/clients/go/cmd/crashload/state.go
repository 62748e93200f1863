package main

import (
	"bufio"
	"fmt"
	"os"
	"sync"
)

// absent stands for a row that is not there, as a generation; counters count instead.
const absent = 0

// row is what may be true of one row: the last acknowledged generation, and those of requests after it whose answer
// is unknown. For a counter the generation is the acknowledged count, and each unanswered increment adds one pending.
type row struct {
	acknowledged uint64
	pending      []uint64
}

// allows tells whether a row may be found with this generation.
func (r *row) allows(generation uint64) bool {
	if generation == r.acknowledged {
		return true
	}
	for _, other := range r.pending {
		if other == generation {
			return true
		}
	}
	return false
}

// journal is the state file, open for appending. Lines are `I key generation` before a request and `A key generation`
// after its acknowledgement. Only the server is killed, never this program, so buffering loses nothing.
type journal struct {
	lock sync.Mutex
	file *os.File
	out  *bufio.Writer
}

func openJournal(path string) (*journal, error) {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, err
	}
	return &journal{file: file, out: bufio.NewWriterSize(file, 1<<20)}, nil
}

func (j *journal) record(event byte, key string, generation uint64) {
	j.lock.Lock()
	defer j.lock.Unlock()
	// A failed write surfaces at close: bufio keeps the first error.
	fmt.Fprintf(j.out, "%c %s %d\n", event, key, generation)
}

func (j *journal) close() error {
	if err := j.out.Flush(); err != nil {
		return err
	}
	return j.file.Close()
}

// loadState replays a state file; one that does not exist is empty.
func loadState(path string) (map[string]*row, error) {
	rows := map[string]*row{}
	file, err := os.Open(path)
	if os.IsNotExist(err) {
		return rows, nil
	}
	if err != nil {
		return nil, err
	}
	defer file.Close()
	lines := bufio.NewScanner(file)
	for lines.Scan() {
		var event byte
		var key string
		var generation uint64
		if _, err := fmt.Sscanf(lines.Text(), "%c %s %d", &event, &key, &generation); err != nil {
			return nil, fmt.Errorf("%s: %q: %w", path, lines.Text(), err)
		}
		known := rows[key]
		if known == nil {
			known = &row{}
			rows[key] = known
		}
		switch event {
		case 'I':
			known.pending = append(known.pending, generation)
		case 'A':
			*known = row{acknowledged: generation}
		}
	}
	return rows, lines.Err()
}

func saveState(path string, rows map[string]*row) error {
	temporary := path + ".new"
	out, err := openJournal(temporary)
	if err != nil {
		return err
	}
	for key, known := range rows {
		out.record('A', key, known.acknowledged)
	}
	if err := out.close(); err != nil {
		return err
	}
	return os.Rename(temporary, path)
}
