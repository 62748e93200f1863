// Command gcs is a server of the part of Google Cloud Storage's XML API that a client of whole objects needs: objects with
// generations and preconditions on them, ranges, listings in pages, uploads in parts. The public emulators leave
// preconditions and uploads in parts of this API out.
//
//	gcs -address 127.0.0.1:7200 -folder DIR -bucket NAME
//
// It does what https://cloud.google.com/storage/docs/xml-api/reference-methods says, as far as it goes, and refuses what it
// does not know: a query parameter, a header `x-goog-…`. It knows no permissions. Contents are files, everything else is
// in memory, so it begins empty.
package main

import (
	"encoding/xml"
	"flag"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/url"
	"strconv"
	"strings"
)

// The headers of ours that it understands; `x-goog-meta-…` besides.
var known = map[string]bool{
	"X-Goog-If-Generation-Match": true,
}

type server struct {
	bucket string
	store  *store
}

func main() {
	log.SetFlags(0)
	address := flag.String("address", "", "where to listen")
	folder := flag.String("folder", "", "where contents go; must exist")
	bucket := flag.String("bucket", "", "the one bucket there is")
	flag.Parse()
	if *address == "" || *folder == "" || *bucket == "" {
		log.Fatal("gcs -address HOST:PORT -folder DIR -bucket NAME")
	}
	s := &server{bucket: *bucket, store: newStore(*folder)}
	log.Fatal(http.ListenAndServe(*address, s))
}

// A refusal, as the API words it.
type refusal struct {
	status int
	code   string
}

func (r *refusal) Error() string { return r.code }

var (
	noSuchKey          = &refusal{http.StatusNotFound, "NoSuchKey"}
	noSuchBucket       = &refusal{http.StatusNotFound, "NoSuchBucket"}
	noSuchUpload       = &refusal{http.StatusNotFound, "NoSuchUpload"}
	preconditionFailed = &refusal{http.StatusPreconditionFailed, "PreconditionFailed"}
	invalidPart        = &refusal{http.StatusBadRequest, "InvalidPart"}
	invalidArgument    = &refusal{http.StatusBadRequest, "InvalidArgument"}
	notAllowed         = &refusal{http.StatusMethodNotAllowed, "MethodNotAllowed"}
)

func (s *server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	err := s.serve(w, r)
	if err == nil {
		return
	}
	// What was not read would be taken for the next request.
	_, _ = io.Copy(io.Discard, r.Body)
	refused, ok := err.(*refusal)
	if !ok {
		refused = &refusal{http.StatusInternalServerError, "InternalError"}
		log.Print(err)
	}
	w.Header().Set("Content-Type", "application/xml")
	w.WriteHeader(refused.status)
	if r.Method != http.MethodHead {
		fmt.Fprintf(w, "<?xml version='1.0' encoding='UTF-8'?><Error><Code>%s</Code></Error>", refused.code)
	}
}

func (s *server) serve(w http.ResponseWriter, r *http.Request) error {
	for name := range r.Header {
		if strings.HasPrefix(name, "X-Goog-") && !known[name] && !strings.HasPrefix(name, "X-Goog-Meta-") {
			return fmt.Errorf("the header %s is not known", name)
		}
	}
	bucket, escaped, _ := strings.Cut(strings.TrimPrefix(r.URL.EscapedPath(), "/"), "/")
	if bucket != s.bucket {
		return noSuchBucket
	}
	key, err := url.PathUnescape(escaped)
	if err != nil {
		return invalidArgument
	}
	query := r.URL.Query()
	switch {
	case key == "" && r.Method == http.MethodGet:
		return s.list(w, query)
	case query.Has("uploads") && r.Method == http.MethodPost:
		return s.begin(w, r, key)
	case query.Has("uploadId"):
		return s.upload(w, r, key, query)
	case len(query) > 0:
		return fmt.Errorf("%s with the parameters %v is not known", r.Method, query)
	case r.Method == http.MethodPut:
		return s.put(w, r, key)
	case r.Method == http.MethodGet || r.Method == http.MethodHead:
		return s.get(w, r, key)
	case r.Method == http.MethodDelete:
		if err := s.store.remove(key); err != nil {
			return err
		}
		w.WriteHeader(http.StatusNoContent)
		return nil
	}
	return notAllowed
}

// put makes an object. The generation must be the one of the precondition, 0 for none, when the body has arrived.
func (s *server) put(w http.ResponseWriter, r *http.Request, key string) error {
	var wanted *int64
	if text := r.Header.Get("X-Goog-If-Generation-Match"); text != "" {
		generation, err := strconv.ParseInt(text, 10, 64)
		if err != nil {
			return invalidArgument
		}
		wanted = &generation
	}
	content, err := s.store.keep(r.Body)
	if err != nil {
		return err
	}
	made, err := s.store.put(key, content, metadata(r.Header), wanted)
	if err != nil {
		return err
	}
	made.describe(w.Header())
	return nil
}

func metadata(header http.Header) map[string]string {
	found := map[string]string{}
	for name := range header {
		if strings.HasPrefix(name, "X-Goog-Meta-") {
			found[name] = header.Get(name)
		}
	}
	return found
}

func (s *server) get(w http.ResponseWriter, r *http.Request, key string) error {
	object, file, err := s.store.open(key)
	if err != nil {
		return err
	}
	defer file.Close()
	object.describe(w.Header())
	w.Header().Set("Content-Type", "application/octet-stream")
	for name, value := range object.metadata {
		w.Header().Set(name, value)
	}
	// Knows ranges, and 416.
	http.ServeContent(w, r, "", object.updated, file)
	return nil
}

type listing struct {
	XMLName               xml.Name `xml:"ListBucketResult"`
	Contents              []entry
	CommonPrefixes        []prefix
	IsTruncated           bool
	NextContinuationToken string `xml:",omitempty"`
}

type entry struct {
	Key          string
	Generation   int64
	LastModified string
	ETag         string
	Size         int64
}

type prefix struct {
	Prefix string
}

// No page is longer.
const pageMax = 1000

func (s *server) list(w http.ResponseWriter, query url.Values) error {
	size := pageMax
	for name := range query {
		switch name {
		case "list-type", "prefix", "delimiter", "start-after", "continuation-token":
		case "max-keys":
			asked, err := strconv.Atoi(query.Get(name))
			if err != nil || asked < 1 {
				return invalidArgument
			}
			size = min(size, asked)
		default:
			return fmt.Errorf("a listing with %s is not known", name)
		}
	}
	// A token is the last name of the page before, or the last common prefix.
	after := max(query.Get("start-after"), query.Get("continuation-token"))
	page := listing{}
	last, lastPrefix := "", ""
	for _, object := range s.store.sorted(query.Get("prefix")) {
		name, common := object.key, ""
		if delimiter := query.Get("delimiter"); delimiter != "" {
			rest := strings.TrimPrefix(object.key, query.Get("prefix"))
			if at := strings.Index(rest, delimiter); at >= 0 {
				common = strings.TrimSuffix(object.key, rest[at+len(delimiter):])
				name = common
			}
		}
		if name <= after || common != "" && common == lastPrefix {
			continue
		}
		if len(page.Contents)+len(page.CommonPrefixes) == size {
			page.IsTruncated, page.NextContinuationToken = true, last
			break
		}
		last = name
		if common != "" {
			lastPrefix = common
			page.CommonPrefixes = append(page.CommonPrefixes, prefix{common})
			continue
		}
		page.Contents = append(page.Contents, object.entry())
	}
	return writeXML(w, page)
}

func writeXML(w http.ResponseWriter, value any) error {
	text, err := xml.Marshal(value)
	if err != nil {
		return err
	}
	w.Header().Set("Content-Type", "application/xml")
	_, err = w.Write(append([]byte(xml.Header), text...))
	return err
}
