// Command registers writes and reads rows through several servers, and proves that each row behaves like one register.
//
//	registers -addresses A,B,C [-rows N] [-tablets N] [-history] [-value-bytes N] [-pace TIME]
//
// Commands are lines of standard input; each is answered by one line of JSON:
//
//	use A,B   requests begun from now on go to these addresses only
//	give up A ends the requests that run on A; they are tried on another address
//	fill N    writes N MiB of other rows, evenly over the tablets
//	begin     starts a window of measurement
//	moment T MICROS  with -history: compares all rows of table T with those of the moment
//	between T FROM TO [whole]  with -history: the same of any moment between two; of one for all rows
//	end       ends it: requests, errors, latencies, the longest pause of a row, violations so far
//
// It ends with standard input.
//
// Each row has one writer, which counts. A violation is a read that returns less than a write or a read had shown before
// it began, or more than was ever sent. Those are the rules of a linearizable register with one writer.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"log"
	"os"
	"strconv"
	"strings"
	"time"

	"cloud.google.com/go/bigtable"
)

const (
	project  = "registers"
	instance = "registers"
	tableID  = "registers"
	family   = "f"
	column   = "n"
	// A table of many tablets takes its time on a busy machine.
	setupWait = 2 * time.Minute
)

func main() {
	log.SetFlags(0)
	addresses := flag.String("addresses", "", "Bigtable addresses of the servers, with commas between them")
	rows := flag.Int("rows", 96, "rows, with a writer each")
	tablets := flag.Int("tablets", 24, "tablets of the table")
	readers := flag.Int("readers", 8, "readers of all rows, besides the writers")
	planted := flag.Bool("planted-stale-reads", false, "hands the checker values from before: every run must fail")
	valueBytes := flag.Int("value-bytes", numberBytes, "bytes of each value")
	pace := flag.Duration("pace", 10*time.Millisecond, "pause of a writer or reader after each request")
	remembers := flag.Bool("history", false, "remembers all writes with their times")
	flag.Parse()
	if *addresses == "" {
		log.Fatal("-addresses is required")
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	servers := &servers{known: map[string]*server{}}
	if err := servers.use(ctx, strings.Split(*addresses, ",")); err != nil {
		log.Fatal(err)
	}
	if err := makeTable(ctx, strings.Split(*addresses, ",")[0], *tablets); err != nil {
		log.Fatal(err)
	}
	test := newTest(servers, *rows, *tablets)
	test.planted, test.valueBytes, test.pace = *planted, *valueBytes, *pace
	if *remembers {
		test.remember()
	}
	test.start(ctx, *readers)
	lines := bufio.NewScanner(os.Stdin)
	answer(map[string]any{"started": true})
	for lines.Scan() {
		report, err := test.command(ctx, lines.Text())
		if err != nil {
			log.Fatal(err)
		}
		answer(report)
	}
}

func (t *test) command(ctx context.Context, line string) (any, error) {
	name, argument, _ := strings.Cut(line, " ")
	switch name {
	case "use":
		return map[string]any{"used": argument}, t.servers.use(ctx, strings.Split(argument, ","))
	case "give":
		address := strings.TrimPrefix(argument, "up ")
		t.servers.giveUp(address)
		return map[string]any{"given up": address}, nil
	case "fill":
		mebibytes, err := strconv.Atoi(argument)
		if err != nil {
			return nil, err
		}
		return map[string]any{"filled": mebibytes}, t.fill(ctx, mebibytes)
	case "moment":
		return t.moment(ctx, argument)
	case "between":
		return t.between(ctx, argument)
	case "begin":
		t.begin()
		return map[string]any{"begun": true}, nil
	case "end":
		return t.end(), nil
	}
	return nil, fmt.Errorf("no command: %q", line)
}

func answer(value any) {
	text, err := json.Marshal(value)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(string(text))
}

// makeTable makes the table with tablets that divide the rows evenly, unless it is there.
func makeTable(ctx context.Context, address string, tablets int) error {
	ctx, cancel := context.WithTimeout(ctx, setupWait)
	defer cancel()
	os.Setenv("BIGTABLE_EMULATOR_HOST", address)
	admin, err := bigtable.NewAdminClient(ctx, project, instance)
	if err != nil {
		return err
	}
	defer admin.Close()
	tables, err := admin.Tables(ctx)
	if err != nil {
		return err
	}
	for _, table := range tables {
		if table == tableID {
			return nil
		}
	}
	var splits []string
	for tablet := 1; tablet < tablets; tablet++ {
		splits = append(splits, prefixOf(tablet))
	}
	return admin.CreateTableFromConf(ctx, &bigtable.TableConf{
		TableID:        tableID,
		SplitKeys:      splits,
		ColumnFamilies: map[string]bigtable.Family{family: {GCPolicy: bigtable.MaxVersionsPolicy(1)}},
	})
}

// prefixOf begins the keys of a tablet.
func prefixOf(tablet int) string {
	return fmt.Sprintf("t%04d", tablet)
}
