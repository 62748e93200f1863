// metadata answers as the metadata server of a cloud machine does, so that Google's clients use a token of Stele as
// their default credentials.
//
// It is a proxy as well, which leads every connection to the server under test: there a call for another service of the cloud
// is refused, while clients repeat for minutes what reaches nobody.
//
// metadata ADDRESS FILE SERVER: serves on ADDRESS, which GCE_METADATA_HOST and HTTPS_PROXY name for the clients, and hands out
// the token in FILE.
package main

import (
	"encoding/json"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"strings"
)

func main() {
	if len(os.Args) != 4 {
		log.Fatal("usage: metadata ADDRESS FILE SERVER")
	}
	token, err := os.ReadFile(os.Args[2])
	if err != nil {
		log.Fatal(err)
	}
	credentials, err := json.Marshal(map[string]any{
		"access_token": strings.TrimSpace(string(token)), "expires_in": 3599, "token_type": "Bearer",
	})
	if err != nil {
		log.Fatal(err)
	}
	answers := map[string]string{
		// The Java client asks for it to learn whether this is a metadata server.
		"/": "computeMetadata/\n",
		"instance/service-accounts/default/token": string(credentials),
		"instance/service-accounts/default/email": "root",
		"project/project-id":                      "p",
		"universe/universe-domain":                "googleapis.com",
	}
	handler := http.HandlerFunc(func(out http.ResponseWriter, request *http.Request) {
		if request.Method == http.MethodConnect {
			tunnel(out, os.Args[3])
			return
		}
		// Clients take an answer for one of a metadata server if it has this header.
		out.Header().Set("Metadata-Flavor", "Google")
		answer, ok := answers[strings.TrimPrefix(request.URL.Path, "/computeMetadata/v1/")]
		if !ok {
			http.NotFound(out, request)
			return
		}
		_, _ = out.Write([]byte(answer))
	})
	log.Fatal(http.ListenAndServe(os.Args[1], handler))
}

// tunnel connects a client with a server until one of them ends the connection.
func tunnel(out http.ResponseWriter, address string) {
	server, err := net.Dial("tcp", address)
	if err != nil {
		http.Error(out, err.Error(), http.StatusBadGateway)
		return
	}
	defer server.Close()
	client, _, err := http.NewResponseController(out).Hijack()
	if err != nil {
		return
	}
	defer client.Close()
	_, _ = io.WriteString(client, "HTTP/1.1 200 OK\r\n\r\n")
	ended := make(chan struct{}, 2)
	for _, way := range [][2]net.Conn{{client, server}, {server, client}} {
		go func() {
			_, _ = io.Copy(way[0], way[1])
			ended <- struct{}{}
		}()
	}
	<-ended
}
