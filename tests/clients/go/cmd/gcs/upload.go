package main

import (
	"encoding/xml"
	"io"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
)

// Every part but the last must be at least so long.
const partMin = 5 << 20

type begun struct {
	XMLName  xml.Name `xml:"InitiateMultipartUploadResult"`
	Bucket   string
	Key      string
	UploadId string
}

type completion struct {
	Parts []struct {
		PartNumber int
		ETag       string
	} `xml:"Part"`
}

type completed struct {
	XMLName xml.Name `xml:"CompleteMultipartUploadResult"`
	Bucket  string
	Key     string
	ETag    string
}

func (s *server) begin(w http.ResponseWriter, r *http.Request, key string) error {
	id := strconv.FormatInt(s.store.next(), 10)
	s.store.mutex.Lock()
	s.store.uploads[id] = &upload{key: key, metadata: metadata(r.Header), parts: map[int]content{}}
	s.store.mutex.Unlock()
	return writeXML(w, begun{Bucket: s.bucket, Key: key, UploadId: id})
}

func (s *server) upload(w http.ResponseWriter, r *http.Request, key string, query url.Values) error {
	id := query.Get("uploadId")
	switch r.Method {
	case http.MethodPut:
		number, err := strconv.Atoi(query.Get("partNumber"))
		if err != nil || number < 1 || number > 10_000 {
			return invalidArgument
		}
		kept, err := s.store.keep(r.Body)
		if err != nil {
			return err
		}
		if err := s.store.addPart(id, key, number, kept); err != nil {
			return err
		}
		w.Header().Set("ETag", `"`+kept.sum+`"`)
		return nil
	case http.MethodPost:
		return s.complete(w, r, key, id)
	case http.MethodDelete:
		if _, err := s.store.takeUpload(id, key); err != nil {
			return err
		}
		w.WriteHeader(http.StatusNoContent)
		return nil
	}
	return notAllowed
}

// complete makes an object of the parts that the request names.
func (s *server) complete(w http.ResponseWriter, r *http.Request, key, id string) error {
	var asked completion
	if err := xml.NewDecoder(r.Body).Decode(&asked); err != nil {
		return invalidArgument
	}
	upload, err := s.store.takeUpload(id, key)
	if err != nil {
		return err
	}
	var readers []io.Reader
	last := 0
	for i, part := range asked.Parts {
		kept, ok := upload.parts[part.PartNumber]
		short := kept.size < partMin && i+1 < len(asked.Parts)
		if !ok || strings.Trim(part.ETag, `"`) != kept.sum || part.PartNumber <= last || short {
			return invalidPart
		}
		last = part.PartNumber
		file, err := os.Open(kept.path)
		if err != nil {
			return err
		}
		defer file.Close()
		defer os.Remove(kept.path)
		readers = append(readers, file)
	}
	whole, err := s.store.keep(io.MultiReader(readers...))
	if err != nil {
		return err
	}
	made, err := s.store.put(key, whole, upload.metadata, nil)
	if err != nil {
		return err
	}
	made.describe(w.Header())
	return writeXML(w, completed{Bucket: s.bucket, Key: key, ETag: made.tag()})
}

func (s *store) addPart(id, key string, number int, kept content) error {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	upload := s.uploads[id]
	if upload == nil || upload.key != key {
		_ = os.Remove(kept.path)
		return noSuchUpload
	}
	if old, ok := upload.parts[number]; ok {
		_ = os.Remove(old.path)
	}
	upload.parts[number] = kept
	return nil
}

func (s *store) takeUpload(id, key string) (*upload, error) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	found := s.uploads[id]
	if found == nil || found.key != key {
		return nil, noSuchUpload
	}
	delete(s.uploads, id)
	return found, nil
}
