package main

import (
	"context"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"time"

	"cloud.google.com/go/bigtable"
)

const (
	// More violations than this say nothing new.
	violationsMax = 20
	scanWait      = 5 * time.Minute
)

type report struct {
	Rows       int      `json:"rows"`
	Deleted    int      `json:"deleted"`
	Undecided  int      `json:"undecided"`
	Violations []string `json:"violations"`
}

func (r *report) violation(format string, args ...any) {
	if len(r.Violations) < violationsMax {
		r.Violations = append(r.Violations, fmt.Sprintf(format, args...))
	}
}

// compare reads everything and returns what it found, as the base of the next round.
func compare(ctx context.Context, table *bigtable.Table, known map[string]*row) (*report, map[string]*row, error) {
	ctx, cancel := context.WithTimeout(ctx, scanWait)
	defer cancel()
	report := &report{Violations: []string{}}
	found := map[string]*row{}
	err := table.ReadRows(ctx, bigtable.InfiniteRange(""), func(content bigtable.Row) bool {
		key := content.Key()
		generation, err := generationOf(key, content[family])
		if err != nil {
			report.violation("row %s: %v", key, err)
			return true
		}
		if _, twice := found[key]; twice {
			report.violation("row %s came twice", key)
		}
		found[key] = &row{acknowledged: generation}
		return true
	}, bigtable.RowFilter(bigtable.LatestNFilter(1)))
	if err != nil {
		return nil, nil, err
	}
	for key, expected := range known {
		judge(report, found, key, expected)
	}
	for key := range found {
		if known[key] == nil {
			report.violation("row %s was never written", key)
		}
	}
	return report, found, nil
}

func judge(report *report, found map[string]*row, key string, expected *row) {
	if len(expected.pending) > 0 {
		report.Undecided++
	}
	actual := found[key]
	if actual == nil {
		// Remember deleted rows too: they must not come back.
		actual = &row{acknowledged: absent}
		found[key] = actual
		report.Deleted++
	} else {
		report.Rows++
	}
	if !expected.allows(actual.acknowledged) && !counterAllows(key, expected, actual.acknowledged) {
		report.violation("row %s has generation %d; acknowledged is %d, unanswered are %v",
			key, actual.acknowledged, expected.acknowledged, expected.pending)
	}
}

// counterAllows: of several unanswered increments any number may have counted, up to the highest one.
func counterAllows(key string, expected *row, count uint64) bool {
	if key[0] != 'c' {
		return false
	}
	highest := expected.acknowledged
	for _, pending := range expected.pending {
		highest = max(highest, pending)
	}
	return expected.acknowledged <= count && count <= highest
}

// generationOf checks that all cells of a row come from one write.
func generationOf(key string, cells []bigtable.ReadItem) (uint64, error) {
	if key[0] == 'c' {
		if len(cells) != 1 || len(cells[0].Value) != 8 {
			return 0, fmt.Errorf("not a counter: %d cells", len(cells))
		}
		return binary.BigEndian.Uint64(cells[0].Value), nil
	}
	if len(cells) != columns+1 {
		return 0, fmt.Errorf("torn: %d cells of %d", len(cells), columns+1)
	}
	sum := crc32.NewIEEE()
	_, _ = sum.Write([]byte(key))
	var generation uint64
	for column, cell := range cells[:columns] {
		if cell.Column != fmt.Sprintf("%s:d%d", family, column) || len(cell.Value) < 8 {
			return 0, fmt.Errorf("torn: cell %d is %s with %d bytes", column, cell.Column, len(cell.Value))
		}
		this := binary.BigEndian.Uint64(cell.Value)
		if column > 0 && this != generation {
			return 0, fmt.Errorf("torn: generations %d and %d", generation, this)
		}
		generation = this
		_, _ = sum.Write(cell.Value)
	}
	want := sum.Sum(binary.BigEndian.AppendUint64(nil, generation))
	if string(cells[columns].Value) != string(want) {
		return 0, fmt.Errorf("checksum differs in generation %d", generation)
	}
	return generation, nil
}
