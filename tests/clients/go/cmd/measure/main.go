// Command measure runs one phase of a measurement through Google's Go client, against any server of the Bigtable API.
//
//	measure fill      -address A -rows N        creates the table and writes it in bulk
//	measure read      -address A -seconds T     ReadRow of a random row
//	measure zipf                                ReadRow, some rows much more often than others
//	measure write                               MutateRow of a random row
//	measure mix                                 seven reads for three writes
//	measure increment                           ReadModifyWriteRow of a counter
//	measure batch                               MutateRows of 100 random rows
//	measure scan                                ReadRows of 1,000 rows from a random row
//	measure neighbours -beside scan             the requests of -beside, until a line comes
//
// After a warm-up it prints "ready" and waits for a line. Then it measures, prints "done" at once when the last
// operation has ended, and a line of JSON. So its caller can read CPU times of the server around the counted
// operations and nothing else. Every operation between the two lines is counted.
//
// Without -rate the loop is closed: each caller waits for its response. With -rate operations are due at fixed times,
// and latency counts from the due time, even if all callers were busy then.
//
// With -beside other requests use the same client meanwhile: scan reads all of another table time and again; mixed has a slow
// reader, a reader of a cell of 100 MiB, and scans of a million rows by a regular expression.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"log"
	"os"
	"time"

	"cloud.google.com/go/bigtable"
	"google.golang.org/api/option"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

const (
	project  = "measure"
	instance = "measure"
)

type settings struct {
	address     string
	table       string
	rows        int
	valueBytes  int
	callers     int
	connections int
	seconds     float64
	warmUp      float64
	rate        float64
	beside      string
	seed        uint64
	ca          string
	token       string
}

func main() {
	log.SetFlags(0)
	if err := run(); err != nil {
		log.Fatal(err)
	}
}

func run() error {
	if len(os.Args) < 2 {
		return errors.New("usage: measure fill|read|zipf|write|mix|increment|batch|scan|neighbours -address A [flags]")
	}
	phase := os.Args[1]
	s := parse(phase, os.Args[2:])
	if s.address == "" || s.rows < 1 || s.callers < 1 {
		return errors.New("-address, and positive -rows and -callers, are required")
	}
	ctx := context.Background()
	if phase == "fill" {
		if err := createTable(ctx, s); err != nil {
			return err
		}
	}
	client, err := newClient(ctx, s)
	if err != nil {
		return err
	}
	defer client.Close()
	table := client.Open(s.table)
	if phase == "fill" {
		return fill(ctx, table, s)
	}
	neighbours, err := neighboursOf(s.beside, client)
	if err != nil {
		return err
	}
	if phase == "neighbours" {
		return alone(ctx, neighbours)
	}
	operation, err := phaseOf(phase, table, s)
	if err != nil {
		return err
	}
	return measured(ctx, s, operation, neighbours)
}

func parse(phase string, arguments []string) settings {
	var s settings
	flags := flag.NewFlagSet(phase, flag.ExitOnError)
	flags.StringVar(&s.address, "address", "", "the server's Bigtable address")
	flags.StringVar(&s.table, "table", "measure", "table to use")
	flags.IntVar(&s.rows, "rows", 200_000, "rows of the table")
	flags.IntVar(&s.valueBytes, "value-bytes", 1000, "bytes of a value")
	flags.IntVar(&s.callers, "callers", 64, "concurrent callers")
	flags.IntVar(&s.connections, "connections", 0, "connections of the client's pool; 0 for the client's own choice")
	flags.Float64Var(&s.seconds, "seconds", 10, "length of the measurement")
	flags.Float64Var(&s.warmUp, "warm-up", 1, "seconds before it")
	flags.Float64Var(&s.rate, "rate", 0, "operations due each second; 0 for a closed loop")
	flags.StringVar(&s.beside, "beside", "", "other requests meanwhile: scan, or mixed")
	flags.StringVar(&s.ca, "ca", "", "authority of the server's certificate, as PEM; plain text without it")
	flags.StringVar(&s.token, "token", "", "file with a bearer token")
	flags.Uint64Var(&s.seed, "seed", 1, "makes keys and values repeatable")
	_ = flags.Parse(arguments)
	return s
}

// newClient connects as users are told to, by the variable, with which the client opens one connection. The variable
// rules out a pool, so a pool gets an endpoint instead.
func newClient(ctx context.Context, s settings) (*bigtable.Client, error) {
	if s.connections == 0 && !s.isSecured() {
		os.Setenv("BIGTABLE_EMULATOR_HOST", s.address)
		return bigtable.NewClient(ctx, project, instance)
	}
	// What is switched off here calls services of the cloud, or changes the number of connections.
	config := bigtable.ClientConfig{
		MetricsProvider:           bigtable.NoopMetricsProvider{},
		DisableDynamicChannelPool: true,
		DisableConnectionRecycler: true,
		DisableDirectAccess:       true,
		DisableSession:            true,
	}
	options, err := s.dial()
	if err != nil {
		return nil, err
	}
	options = append(options, option.WithGRPCConnectionPool(max(1, s.connections)))
	return bigtable.NewClientWithConfig(ctx, project, instance, config, options...)
}

func newAdminClient(ctx context.Context, s settings) (*bigtable.AdminClient, error) {
	if !s.isSecured() {
		os.Setenv("BIGTABLE_EMULATOR_HOST", s.address)
		return bigtable.NewAdminClient(ctx, project, instance)
	}
	options, err := s.dial()
	if err != nil {
		return nil, err
	}
	return bigtable.NewAdminClient(ctx, project, instance, options...)
}

func createTable(ctx context.Context, s settings) error {
	ctx, cancel := context.WithTimeout(ctx, callWait)
	defer cancel()
	admin, err := newAdminClient(ctx, s)
	if err != nil {
		return err
	}
	defer admin.Close()
	err = admin.CreateTableFromConf(ctx, &bigtable.TableConf{
		TableID:        s.table,
		ColumnFamilies: map[string]bigtable.Family{family: {GCPolicy: bigtable.MaxVersionsPolicy(1)}},
	})
	if status.Code(err) == codes.AlreadyExists {
		return nil
	}
	return err
}

func measured(ctx context.Context, s settings, operation operation, neighbours []*neighbour) error {
	// Warm-ups are closed loops: they shall find out the server's pace, not keep one.
	warmUp := s
	warmUp.rate = 0
	warmUp.seconds = s.warmUp
	if s.warmUp > 0 {
		loop(ctx, warmUp, operation)
	}
	fmt.Println("ready")
	// At the end of input it measures, too: then nobody watches the server.
	awaitLine()
	s.seed++
	var outcome *outcome
	rounds, err := beside(ctx, neighbours, func() { outcome = loop(ctx, s, operation) })
	if err != nil {
		return err
	}
	fmt.Println("done")
	result := outcome.result()
	result.Neighbours = rounds
	if outcome.firstError != nil {
		log.Printf("%d errors, the first: %v", result.Errors, outcome.firstError)
	}
	return json.NewEncoder(os.Stdout).Encode(result)
}

// awaitLine returns when a line comes, or at the end of input.
func awaitLine() {
	_, _ = bufio.NewReader(os.Stdin).ReadString('\n')
}

// callWait is the limit of a call; longer is a failure of the server.
const callWait = 60 * time.Second
