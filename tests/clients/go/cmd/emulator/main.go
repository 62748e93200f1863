// Command emulator runs Google's in-memory Bigtable emulator, so that measurements can set Stele beside it. It is the
// same server that the Cloud SDK ships as cbtemulator.
package main

import (
	"flag"
	"fmt"
	"log"

	"cloud.google.com/go/bigtable/bttest"
	"google.golang.org/grpc"
)

// As in Google's own command: cells may have 100 MB.
const messageBytesMax = 256 << 20

func main() {
	address := flag.String("address", "127.0.0.1:0", "where to listen")
	flag.Parse()
	server, err := bttest.NewServer(*address, grpc.MaxRecvMsgSize(messageBytesMax), grpc.MaxSendMsgSize(messageBytesMax))
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("listening on", server.Addr)
	select {}
}
