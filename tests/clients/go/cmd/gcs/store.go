package main

import (
	"crypto/md5"
	"encoding/hex"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"sort"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Content that has arrived: a file of its own.
type content struct {
	path string
	size int64
	sum  string
}

type object struct {
	content
	key        string
	generation int64
	updated    time.Time
	metadata   map[string]string
}

func (o *object) describe(header http.Header) {
	header.Set("ETag", o.tag())
	header.Set("X-Goog-Generation", strconv.FormatInt(o.generation, 10))
	header.Set("Last-Modified", o.updated.Format(http.TimeFormat))
}

func (o *object) tag() string { return `"` + o.sum + `"` }

func (o *object) entry() entry {
	return entry{
		Key: o.key, Generation: o.generation, LastModified: o.updated.Format("2006-01-02T15:04:05.000Z"),
		ETag: o.tag(), Size: o.size,
	}
}

// An upload in parts that is neither complete nor given up.
type upload struct {
	key      string
	metadata map[string]string
	parts    map[int]content
}

type store struct {
	folder string

	mutex   sync.Mutex
	objects map[string]*object
	uploads map[string]*upload
	// Of generations, uploads and files.
	last int64
}

func newStore(folder string) *store {
	return &store{folder: folder, objects: map[string]*object{}, uploads: map[string]*upload{}}
}

func (s *store) next() int64 {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	s.last++
	return s.last
}

// keep writes what arrives to a file. A body that breaks off is none.
func (s *store) keep(body io.Reader) (content, error) {
	path := filepath.Join(s.folder, fmt.Sprintf("%012d", s.next()))
	file, err := os.Create(path)
	if err != nil {
		return content{}, err
	}
	sum := md5.New()
	size, err := io.Copy(io.MultiWriter(file, sum), body)
	if closed := file.Close(); err == nil {
		err = closed
	}
	if err != nil {
		_ = os.Remove(path)
		return content{}, err
	}
	return content{path, size, hex.EncodeToString(sum.Sum(nil))}, nil
}

// put makes an object of what was kept, where its precondition holds.
func (s *store) put(key string, kept content, metadata map[string]string, wanted *int64) (*object, error) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	old := s.objects[key]
	if wanted != nil {
		var there int64
		if old != nil {
			there = old.generation
		}
		if there != *wanted {
			_ = os.Remove(kept.path)
			return nil, preconditionFailed
		}
	}
	if old != nil {
		_ = os.Remove(old.path)
	}
	s.last++
	made := &object{content: kept, key: key, generation: s.last, updated: time.Now().UTC(), metadata: metadata}
	s.objects[key] = made
	return made, nil
}

func (s *store) remove(key string) error {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	old := s.objects[key]
	if old == nil {
		return noSuchKey
	}
	delete(s.objects, key)
	_ = os.Remove(old.path)
	return nil
}

// open gives an object and its content, which stays readable when the object is replaced.
func (s *store) open(key string) (*object, *os.File, error) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	found := s.objects[key]
	if found == nil {
		return nil, nil, noSuchKey
	}
	file, err := os.Open(found.path)
	return found, file, err
}

func (s *store) sorted(prefix string) []*object {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	var found []*object
	for key, object := range s.objects {
		if strings.HasPrefix(key, prefix) {
			found = append(found, object)
		}
	}
	sort.Slice(found, func(i, j int) bool { return found[i].key < found[j].key })
	return found
}
