// Takes the spans of an OpenTelemetry exporter and forgets them.
//
// Every call of gRPC is answered with an empty message, which is the response of an export that was taken whole.
package main

import (
	"flag"
	"fmt"
	"io"
	"net"
	"os"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/emptypb"
)

func main() {
	address := flag.String("address", "127.0.0.1:4317", "address to listen on")
	flag.Parse()
	if err := serve(*address); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func serve(address string) error {
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return err
	}
	return grpc.NewServer(grpc.UnknownServiceHandler(take)).Serve(listener)
}

func take(_ any, stream grpc.ServerStream) error {
	for {
		// Its fields are unknown ones, which are kept as they are.
		switch err := stream.RecvMsg(&emptypb.Empty{}); err {
		case nil:
		case io.EOF:
			return stream.SendMsg(&emptypb.Empty{})
		default:
			return err
		}
	}
}
