// Command crashload writes rows to a server that is about to be killed, remembers what was acknowledged, and later
// proves that all of it is there.
//
//	crashload write  -address A -state FILE    writes until standard input ends
//	crashload verify -address A -state FILE    reads everything back, exits 1 on any violation
//
// The state file is a log of what the writers did: an intent before each request and an acknowledgement after it. One
// worker owns a row, and has at most one request in flight, so each row may be only in a few states: the last
// acknowledged one, or that of a later request whose answer never came. Anything else is a lost or torn write.
// After verifying, the state file is replaced by what was found: what was once read must stay.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"log"
	"os"
	"time"

	"cloud.google.com/go/bigtable"
)

const (
	project  = "crash"
	instance = "crash"
	tableID  = "crash"
	family   = "f"
)

func main() {
	log.SetFlags(0)
	if len(os.Args) < 2 {
		log.Fatal("usage: crashload write|verify [flags]")
	}
	flags := flag.NewFlagSet(os.Args[1], flag.ExitOnError)
	address := flags.String("address", "", "the server's Bigtable address")
	state := flags.String("state", "", "the file that carries what was acknowledged")
	workers := flags.Int("workers", 64, "concurrent writers")
	seed := flags.Uint64("seed", 1, "makes the writers' choices repeatable")
	_ = flags.Parse(os.Args[2:])
	if *address == "" || *state == "" {
		log.Fatal("-address and -state are required")
	}
	os.Setenv("BIGTABLE_EMULATOR_HOST", *address)
	ctx := context.Background()
	var err error
	switch os.Args[1] {
	case "write":
		err = write(ctx, *state, *workers, *seed)
	case "verify":
		err = verify(ctx, *state)
	default:
		log.Fatalf("unknown mode %q", os.Args[1])
	}
	if err != nil {
		log.Fatal(err)
	}
}

func write(ctx context.Context, statePath string, workers int, seed uint64) error {
	if err := ensureTable(ctx); err != nil {
		return err
	}
	known, err := loadState(statePath)
	if err != nil {
		return err
	}
	journal, err := openJournal(statePath)
	if err != nil {
		return err
	}
	client, err := bigtable.NewClient(ctx, project, instance)
	if err != nil {
		return err
	}
	defer client.Close()
	// Whoever kills the server waits for this line: from here on a dead server is no error.
	if err := print(map[string]any{"known": len(known)}); err != nil {
		return err
	}
	acknowledged := runWriters(ctx, client.Open(tableID), journal, known, workers, seed)
	if err := journal.close(); err != nil {
		return err
	}
	return print(map[string]any{"acknowledged": acknowledged})
}

func verify(ctx context.Context, statePath string) error {
	known, err := loadState(statePath)
	if err != nil {
		return err
	}
	client, err := bigtable.NewClient(ctx, project, instance)
	if err != nil {
		return err
	}
	defer client.Close()
	report, found, err := compare(ctx, client.Open(tableID), known)
	if err != nil {
		return err
	}
	if err := print(report); err != nil {
		return err
	}
	if len(report.Violations) > 0 {
		os.Exit(1)
	}
	return saveState(statePath, found)
}

func ensureTable(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
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
	return admin.CreateTableFromConf(ctx, &bigtable.TableConf{
		TableID:        tableID,
		SplitKeys:      []string{"w16", "w32", "w48"},
		ColumnFamilies: map[string]bigtable.Family{family: {GCPolicy: bigtable.MaxVersionsPolicy(1)}},
	})
}

func print(value any) error {
	text, err := json.Marshal(value)
	if err != nil {
		return err
	}
	_, err = fmt.Println(string(text))
	return err
}
