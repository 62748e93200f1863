package main

import (
	"context"
	"math/rand/v2"
	"os"
	"sync"

	"cloud.google.com/go/bigtable"
	"google.golang.org/api/option"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
)

// The client's own limit where it is no emulator.
const messageBytesMax = 256 << 20

// server is an address with its client.
type server struct {
	client *bigtable.Client
	table  *bigtable.Table
	// Done when the server is given up: it is dead, and a load balancer would have noticed.
	given context.Context
	up    context.CancelFunc
}

// servers are the addresses that requests go to, with a client for each that was ever used.
type servers struct {
	lock    sync.RWMutex
	known   map[string]*server
	current []*server
}

// use sends the requests that begin from now on to these addresses.
func (s *servers) use(ctx context.Context, addresses []string) error {
	s.lock.Lock()
	defer s.lock.Unlock()
	var current []*server
	for _, address := range addresses {
		known := s.known[address]
		if known == nil {
			// The client has no other option for a server without TLS. It reads the variable here, once.
			os.Setenv("BIGTABLE_EMULATOR_HOST", address)
			// By itself the client gives its connections the gRPC default of 4 MiB there, and a large row is more.
			conn, err := grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()),
				grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(messageBytesMax)))
			if err != nil {
				return err
			}
			config := bigtable.ClientConfig{MetricsProvider: bigtable.NoopMetricsProvider{}}
			client, err := bigtable.NewClientWithConfig(ctx, project, instance, config, option.WithGRPCConn(conn))
			if err != nil {
				return err
			}
			known = &server{client: client, table: client.Open(tableID)}
			known.given, known.up = context.WithCancel(ctx)
			s.known[address] = known
		}
		current = append(current, known)
	}
	s.current = current
	return nil
}

// giveUp ends the requests that run on an address; they are tried on another one.
func (s *servers) giveUp(address string) {
	s.lock.Lock()
	defer s.lock.Unlock()
	if known := s.known[address]; known != nil {
		known.up()
		delete(s.known, address)
	}
}

// try makes a request to one of the servers in use, and to another one whenever that is given up.
func (s *servers) try(ctx context.Context, request func(context.Context, *bigtable.Table) error) error {
	for {
		server := s.any()
		attempt, cancel := context.WithCancel(ctx)
		stop := context.AfterFunc(server.given, cancel)
		err := request(attempt, server.table)
		stop()
		cancel()
		if err == nil || ctx.Err() != nil || server.given.Err() == nil {
			return err
		}
	}
}

func (s *servers) any() *server {
	s.lock.RLock()
	defer s.lock.RUnlock()
	return s.current[rand.IntN(len(s.current))]
}
