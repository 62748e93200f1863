// Command load fills a table and measures a server, any server of the Bigtable API.
//
//	load fill  -address A -rows N -bytes S      writes rows in bulk, then counts them
//	load write -address A -seconds T            MutateRow from concurrent callers
//	load read  -address A -rows N -seconds T    ReadRows of one random row from concurrent callers
//	load count -address A                       scans the whole table
//	load zipf|scans|large|wide|connect|stall    presses on the server's memory, see press.go
//	load large-check -address A -state F        compares the values of `large`, whose writes are in the file F
//
// The result is one line of JSON. The loop is closed: each caller waits for its answer, so latencies are those of a
// server under exactly that many callers. CPU time of the server is for the caller of this program to read.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"log"
	"os"
	"time"

	"cloud.google.com/go/bigtable"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

const (
	project  = "load"
	instance = "load"
	family   = "f"
	column   = "q"
)

type settings struct {
	table   string
	rows    int
	bytes   int
	callers int
	seconds int
	batch   int
	seed    uint64
	state   string
}

func main() {
	log.SetFlags(0)
	if err := run(); err != nil {
		log.Fatal(err)
	}
}

func run() error {
	if len(os.Args) < 2 {
		return errors.New("usage: load fill|write|read|count|zipf|scans|large|large-check|wide|connect|stall [flags]")
	}
	flags := flag.NewFlagSet(os.Args[1], flag.ExitOnError)
	address := flags.String("address", "", "the server's Bigtable address")
	var s settings
	flags.StringVar(&s.table, "table", "load", "table to use; made when missing")
	flags.IntVar(&s.rows, "rows", 100_000, "rows to write, or rows there are to read")
	flags.IntVar(&s.bytes, "bytes", 1000, "bytes of a value")
	flags.IntVar(&s.callers, "callers", 64, "concurrent callers")
	flags.IntVar(&s.seconds, "seconds", 10, "length of a measurement")
	flags.IntVar(&s.batch, "batch", 100, "rows of one bulk request")
	flags.Uint64Var(&s.seed, "seed", 1, "makes keys and values repeatable")
	flags.StringVar(&s.state, "state", "", "file that remembers the writes of large values from one run to the next")
	_ = flags.Parse(os.Args[2:])
	if *address == "" {
		return errors.New("-address is required")
	}
	os.Setenv("BIGTABLE_EMULATOR_HOST", *address)
	ctx := context.Background()
	if err := ensureTable(ctx, s.table); err != nil {
		return err
	}
	client, err := bigtable.NewClient(ctx, project, instance)
	if err != nil {
		return err
	}
	defer client.Close()
	result, err := dispatch(ctx, os.Args[1], *address, client.Open(s.table), s)
	if err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(result)
}

func dispatch(ctx context.Context, mode, address string, table *bigtable.Table, s settings) (any, error) {
	switch mode {
	case "fill":
		return fill(ctx, table, s)
	case "write":
		return measure(ctx, s, writeOne(table, s))
	case "read":
		return measure(ctx, s, readOne(table, s))
	case "count":
		return count(ctx, table)
	case "zipf":
		return readZipf(ctx, table, s)
	case "scans":
		return scanAll(ctx, table, s)
	case "large":
		return largeValues(ctx, address, s)
	case "large-check":
		return checkLarge(ctx, address, s)
	case "wide":
		return wideRow(ctx, address, s)
	case "connect":
		return connect(ctx, address, s)
	case "stall":
		return stall(ctx, address, s)
	default:
		return nil, fmt.Errorf("unknown mode %q", mode)
	}
}

func ensureTable(ctx context.Context, table string) error {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	admin, err := bigtable.NewAdminClient(ctx, project, instance)
	if err != nil {
		return err
	}
	defer admin.Close()
	err = admin.CreateTableFromConf(ctx, &bigtable.TableConf{
		TableID:        table,
		ColumnFamilies: map[string]bigtable.Family{family: {GCPolicy: bigtable.MaxVersionsPolicy(1)}},
	})
	if status.Code(err) == codes.AlreadyExists {
		return nil
	}
	return err
}
