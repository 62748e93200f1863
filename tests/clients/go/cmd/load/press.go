package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"cloud.google.com/go/bigtable"
	pb "cloud.google.com/go/bigtable/apiv2/bigtablepb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
)

// What presses on the memory of a server. Refusals are as good as answers here; what counts is that the server lives, and
// how large it gets, which the caller of this program watches.

const (
	// Streams on one connection; servers allow two hundred.
	streamsPerConnection = 100
	// Cells of a wide row in one request.
	cellsPerRequest = 20_000
)

type pressure struct {
	Done    int64 `json:"done"`
	Refused int64 `json:"refused"`
	Bytes   int64 `json:"bytes"`
}

func (p *pressure) count(bytes int64, err error) error {
	switch {
	case err == nil:
		atomic.AddInt64(&p.Done, 1)
		atomic.AddInt64(&p.Bytes, bytes)
	case refusal(err):
		atomic.AddInt64(&p.Refused, 1)
	default:
		return err
	}
	return nil
}

// refusal tells the errors with which a server defends itself from those with which it fails.
func refusal(err error) bool {
	switch status.Code(err) {
	case codes.Unavailable, codes.ResourceExhausted, codes.DeadlineExceeded, codes.Canceled, codes.InvalidArgument:
		return true
	default:
		return errors.Is(err, io.EOF)
	}
}

func tableName(s settings) string {
	return fmt.Sprintf("projects/%s/instances/%s/tables/%s", project, instance, s.table)
}

func dial(address string, options ...grpc.DialOption) (*grpc.ClientConn, error) {
	options = append(options, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(512<<20)))
	return grpc.NewClient(address, options...)
}

// each runs something from concurrent callers until the time is over.
func each(ctx context.Context, s settings, do func(ctx context.Context, caller int) error) error {
	ctx, cancel := context.WithTimeout(ctx, time.Duration(s.seconds)*time.Second)
	defer cancel()
	var group sync.WaitGroup
	var first atomic.Pointer[error]
	for caller := range s.callers {
		group.Go(func() {
			for ctx.Err() == nil && first.Load() == nil {
				// Any error may follow from the end of the time, but not a wrong answer.
				if err := do(ctx, caller); err != nil && (ctx.Err() == nil || errors.Is(err, errWrong)) {
					first.CompareAndSwap(nil, &err)
				}
			}
		})
	}
	group.Wait()
	if err := first.Load(); err != nil {
		return *err
	}
	return nil
}

// readZipf reads single rows, some of them much more often than others.
func readZipf(ctx context.Context, table *bigtable.Table, s settings) (*pressure, error) {
	result := &pressure{}
	zipfs := make([]*rand.Zipf, s.callers)
	for caller := range zipfs {
		zipfs[caller] = rand.NewZipf(rand.New(chacha(s.seed, caller)), 1.1, 1, uint64(s.rows-1))
	}
	return result, each(ctx, s, func(ctx context.Context, caller int) error {
		key := rowKey(int(zipfs[caller].Uint64()))
		row, err := table.ReadRow(ctx, key)
		// A row that is not there is no error to the client, and all of them are.
		if err == nil && len(row[family]) != 1 {
			err = fmt.Errorf("row %s has %d cells, want 1", key, len(row[family]))
		}
		return result.count(0, err)
	})
}

// scanAll scans the whole table from every caller.
func scanAll(ctx context.Context, table *bigtable.Table, s settings) (*pressure, error) {
	result := &pressure{}
	return result, each(ctx, s, func(ctx context.Context, _ int) error {
		counted, err := count(ctx, table)
		if err == nil && counted.Rows != s.rows {
			err = fmt.Errorf("a scan gave %d rows, want %d", counted.Rows, s.rows)
		}
		return result.count(counted.Bytes, err)
	})
}

func drain(ctx context.Context, client pb.BigtableClient, request *pb.ReadRowsRequest) (int64, error) {
	stream, err := client.ReadRows(ctx, request)
	if err != nil {
		return 0, err
	}
	var bytes int64
	for {
		response, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return bytes, nil
		}
		if err != nil {
			return bytes, err
		}
		for _, chunk := range response.Chunks {
			bytes += int64(len(chunk.Value))
		}
	}
}

// wideRow makes one row of many cells, then reads it from every caller, as it is and through filters that copy it.
func wideRow(ctx context.Context, address string, s settings) (*pressure, error) {
	connection, err := dial(address)
	if err != nil {
		return nil, err
	}
	defer connection.Close()
	client := pb.NewBigtableClient(connection)
	for from := 0; from < s.rows; from += cellsPerRequest {
		request := &pb.MutateRowRequest{TableName: tableName(s), RowKey: []byte("wide")}
		for n := from; n < min(from+cellsPerRequest, s.rows); n++ {
			request.Mutations = append(request.Mutations, &pb.Mutation{Mutation: &pb.Mutation_SetCell_{
				SetCell: &pb.Mutation_SetCell{
					FamilyName: family, ColumnQualifier: fmt.Appendf(nil, "%08d", n), TimestampMicros: 1000, Value: make([]byte, s.bytes),
				},
			}})
		}
		for {
			if _, err := client.MutateRow(ctx, request); err == nil {
				break
			} else if !refusal(err) {
				return nil, err
			}
			time.Sleep(100 * time.Millisecond)
		}
	}
	pass := &pb.RowFilter{Filter: &pb.RowFilter_PassAllFilter{PassAllFilter: true}}
	copies := &pb.RowFilter{Filter: &pb.RowFilter_Interleave_{Interleave: &pb.RowFilter_Interleave{Filters: []*pb.RowFilter{pass, pass, pass, pass}}}}
	result := &pressure{}
	return result, each(ctx, s, func(ctx context.Context, caller int) error {
		request := &pb.ReadRowsRequest{TableName: tableName(s), Rows: &pb.RowSet{RowKeys: [][]byte{[]byte("wide")}}}
		if caller%2 == 0 {
			request.Filter = copies
		}
		bytes, err := drain(ctx, client, request)
		return result.count(bytes, err)
	})
}

// connect opens a connection for each caller, reads one row over it, and keeps all of them open.
func connect(ctx context.Context, address string, s settings) (*pressure, error) {
	result := &pressure{}
	var group sync.WaitGroup
	var first atomic.Pointer[error]
	slots := make(chan struct{}, 64)
	for caller := range s.callers {
		connection, err := dial(address)
		if err != nil {
			return nil, err
		}
		defer connection.Close()
		group.Go(func() {
			slots <- struct{}{}
			defer func() { <-slots }()
			ctx, cancel := context.WithTimeout(ctx, callWait)
			defer cancel()
			_, err := drain(ctx, pb.NewBigtableClient(connection), &pb.ReadRowsRequest{
				TableName: tableName(s), Rows: &pb.RowSet{RowKeys: [][]byte{[]byte(rowKey(caller))}},
			})
			if err := result.count(0, err); err != nil {
				first.CompareAndSwap(nil, &err)
			}
		})
	}
	group.Wait()
	if err := first.Load(); err != nil {
		return nil, *err
	}
	time.Sleep(time.Duration(s.seconds) * time.Second)
	return result, nil
}

// stall opens as many scans as there are callers and takes nothing of their answers but what fits the smallest windows.
func stall(ctx context.Context, address string, s settings) (*pressure, error) {
	result := &pressure{}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var connection *grpc.ClientConn
	for caller := range s.callers {
		if caller%streamsPerConnection == 0 {
			var err error
			if connection, err = dial(address, grpc.WithStaticStreamWindowSize(65_535), grpc.WithStaticConnWindowSize(65_535)); err != nil {
				return nil, err
			}
			defer connection.Close()
		}
		_, err := pb.NewBigtableClient(connection).ReadRows(ctx, &pb.ReadRowsRequest{TableName: tableName(s)})
		if err := result.count(0, err); err != nil {
			return nil, err
		}
	}
	time.Sleep(time.Duration(s.seconds) * time.Second)
	return result, nil
}
