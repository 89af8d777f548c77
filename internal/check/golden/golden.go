// Package golden keeps samples of every format that any release has stored on disk or
// sent between nodes: their bytes and their meaning. Every later version must read them
// and find the same meaning (I12).
//
// It owns the files of a set, and knows no format: the tests of the package that owns a
// format decode the bytes and determine which samples there must be. Only tests use it.
//
// # Levels
//
// A set has one directory for each level. [Level] is the current one. The first change of
// any format after a release raises it, and
//
//	go test ./internal/core/oracle ./internal/core/wire ./internal/host/storage ./internal/core/replica -golden.add
//
// then writes the samples of the new level. Existing samples never change: the file SUMS
// has the checksum of every item, so the tests detect one that is missing or was changed.
// A level that was never released may be deleted as a whole, with its lines in SUMS, and
// written again.
//
// # Files
//
//	SUMS              checksum and name of every item: level/kind/name
//	level1/KIND.txt   items: a name in brackets, the bytes ("hex", or "file" with the
//	                  name of a compressed file in the same directory), the meaning
//	                  ("want", JSON)
//
// The JSON omits fields that are zero, empty or false. So adding a field does not affect
// older items, as long as it is zero when they are read.
package golden

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Level is the level of the formats that this version writes.
const Level = 1

const (
	sumsName = "SUMS"
	// hexBytesMax is the largest item in hexadecimal; larger ones get a file.
	hexBytesMax = 2 << 10
	// itemBytesMax bounds one item, uncompressed. A data directory is the largest.
	itemBytesMax = 4 << 20
)

// Item is one sample.
type Item struct {
	Level      int
	Kind, Name string
	Bytes      []byte
	// Want is what the bytes mean, as JSON.
	Want json.RawMessage
}

// String returns "level1/kind/name".
func (i *Item) String() string { return fmt.Sprintf("%s/%s/%s", levelName(i.Level), i.Kind, i.Name) }

func (i *Item) sum() string {
	h := sha256.New()
	fmt.Fprintf(h, "%s\n%d\n%s\n%s\n", i, len(i.Bytes), i.Bytes, i.Want)
	return hex.EncodeToString(h.Sum(nil))
}

func levelName(level int) string { return fmt.Sprintf("level%d", level) }

// Set is a golden set.
type Set struct {
	dir   string
	items []Item
}

// Open reads the set in a directory, by convention testdata/golden, and fails the test
// if an item is missing or was changed.
func Open(t testing.TB, dir string) *Set {
	t.Helper()
	s := &Set{dir: dir}
	if err := s.load(); err != nil {
		t.Fatalf("golden: %v", err)
	}
	for _, fault := range s.faults() {
		t.Errorf("golden: %s", fault)
	}
	return s
}

// Items returns all items of a kind, of all levels.
func (s *Set) Items(kind string) []Item {
	var list []Item
	for _, i := range s.items {
		if i.Kind == kind {
			list = append(list, i)
		}
	}
	return list
}

func (s *Set) load() error {
	for level := 1; level <= Level; level++ {
		paths, err := filepath.Glob(filepath.Join(s.dir, levelName(level), "*.txt"))
		if err != nil {
			return err
		}
		for _, path := range paths {
			if err := s.loadKind(level, path); err != nil {
				return fmt.Errorf("%s: %w", path, err)
			}
		}
	}
	return nil
}

// loadKind reads the items of one file.
func (s *Set) loadKind(level int, path string) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	for block := range strings.SplitSeq(strings.TrimSpace(string(text)), "\n\n") {
		i := Item{Level: level, Kind: strings.TrimSuffix(filepath.Base(path), ".txt")}
		for line := range strings.Lines(block) {
			if err := i.parse(strings.TrimSuffix(line, "\n"), filepath.Dir(path)); err != nil {
				return fmt.Errorf("%.40q: %w", line, err)
			}
		}
		s.items = append(s.items, i)
	}
	return nil
}

// parse reads one line.
func (i *Item) parse(line, dir string) (err error) {
	word, rest, _ := strings.Cut(line, " ")
	switch {
	case strings.HasPrefix(line, "[") && strings.HasSuffix(line, "]"):
		i.Name = line[1 : len(line)-1]
	case word == "hex":
		i.Bytes, err = hex.DecodeString(rest)
	case word == "file":
		i.Bytes, err = readCompressed(filepath.Join(dir, rest))
	case word == "want":
		i.Want = json.RawMessage(rest)
	default:
		err = fmt.Errorf("want [NAME], hex, file or want")
	}
	return err
}

// faults compares the items with their checksums.
func (s *Set) faults() (faults []string) {
	sums := map[string]string{}
	text, err := os.ReadFile(filepath.Join(s.dir, sumsName))
	if err != nil && !os.IsNotExist(err) {
		return []string{err.Error()}
	}
	for line := range strings.Lines(string(text)) {
		sum, name, _ := strings.Cut(strings.TrimSuffix(line, "\n"), "  ")
		sums[name] = sum
	}
	for _, i := range s.items {
		switch sum, ok := sums[i.String()]; {
		case !ok:
			faults = append(faults, fmt.Sprintf("%s has no checksum, or is there twice", &i))
		case sum != i.sum():
			faults = append(faults, fmt.Sprintf("%s was changed: released items must stay the same", &i))
		}
		delete(sums, i.String())
	}
	for name := range sums {
		faults = append(faults, fmt.Sprintf("%s is missing: released items must stay", name))
	}
	return faults
}

func readCompressed(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		return nil, err
	}
	return io.ReadAll(io.LimitReader(z, itemBytesMax))
}

func compressed(b []byte) ([]byte, error) {
	var buf bytes.Buffer
	z, err := gzip.NewWriterLevel(&buf, gzip.BestCompression)
	if err != nil {
		return nil, err
	}
	if _, err := z.Write(b); err != nil {
		return nil, err
	}
	err = z.Close()
	return buf.Bytes(), err
}
