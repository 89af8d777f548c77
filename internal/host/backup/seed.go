package backup

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/isotone/isotone/internal/host/storage"
)

// SeedName is the name of a seed in a data directory.
const SeedName = "isotone.seed"

// Seed is what one node of a restored cluster begins with.
type Seed struct {
	Format int `json:"format"`
	// NodeID is the node, Founders are the initial members in ascending order.
	NodeID   uint64   `json:"nodeID"`
	Founders []uint64 `json:"founders"`
	// Floor is a time above everything that the lost cluster has issued, as this node's
	// operator says, in unix nanoseconds.
	Floor  uint64   `json:"floor,string"`
	Backup Document `json:"backup"`
	// Sum is the SHA-256 of the rest in hexadecimal digits.
	Sum string `json:"sum"`
}

func (s *Seed) sum() string {
	h := sha256.New()
	fmt.Fprintf(h, "seed %d\n%d\n%d\n%d\n%s\n", s.Format, s.NodeID, s.Founders, s.Floor, s.Backup.Sum)
	return text(h)
}

// Encode seals the seed and returns its bytes.
func (s *Seed) Encode() []byte {
	s.Format = Format
	s.Sum = s.sum()
	return encode(s)
}

// DecodeSeed returns the seed in b.
func DecodeSeed(b []byte) (Seed, error) {
	var s Seed
	if err := decode(b, &s, "a seed"); err != nil {
		return Seed{}, err
	}
	if s.Sum != s.sum() {
		return Seed{}, errors.New("the seed is damaged: its checksum does not match")
	}
	return s, s.Backup.check()
}

// WriteSeed writes the seed into a data directory; see [Write]. It replaces any other.
func WriteSeed(dir string, s *Seed, step func(string)) error {
	if err := Write(filepath.Join(dir, SeedName), s.Encode(), true, step); err != nil {
		return err
	}
	return removeAll(seedParts(dir))
}

// seedParts returns the files that interrupted calls of WriteSeed have left.
func seedParts(dir string) []string {
	entries, _ := os.ReadDir(dir) // without a directory there are none
	var parts []string
	for _, e := range entries {
		if name := e.Name(); strings.HasPrefix(name, SeedName+".") && strings.HasSuffix(name, partSuffix) {
			parts = append(parts, filepath.Join(dir, name))
		}
	}
	return parts
}

func removeAll(paths []string) (err error) {
	for _, path := range paths {
		if e := os.Remove(path); !errors.Is(e, os.ErrNotExist) {
			err = errors.Join(err, e)
		}
	}
	return err
}

// ReadSeed returns the seed in a data directory, nil if there is none. It fails if it was
// being written when that was interrupted.
func ReadSeed(dir string) (*Seed, error) {
	path := filepath.Join(dir, SeedName)
	b, err := Read(path)
	if errors.Is(err, os.ErrNotExist) {
		if parts := seedParts(dir); len(parts) > 0 {
			return nil, fmt.Errorf("the restoration of a backup into %s was interrupted (it left %s): run it again, or delete that file", dir, filepath.Base(parts[0]))
		}
		return nil, nil
	}
	if err == nil {
		var s Seed
		if s, err = DecodeSeed(b); err == nil {
			return &s, nil
		}
	}
	return nil, fmt.Errorf("%s: %w; delete the file and restore the backup again", path, err)
}

// RemoveSeed removes the seed in a data directory, if there is one, and what is left of
// interrupted ones.
func RemoveSeed(dir string) error {
	files := seedParts(dir)
	if path := filepath.Join(dir, SeedName); exists(path) {
		files = append(files, path)
	}
	if len(files) == 0 {
		return nil
	}
	return errors.Join(removeAll(files), storage.SyncDir(dir))
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

// CheckNode returns why a node with these initial members cannot begin with the seed, or nil.
func (s *Seed) CheckNode(node uint64, founders []uint64) error {
	slices.Sort(founders)
	switch {
	case s.NodeID != node:
		return fmt.Errorf("the data directory was restored for node %d, but this is node %d: start it with NODE_ID=%d, or delete %s and restore again", s.NodeID, node, s.NodeID, SeedName)
	case !slices.Equal(s.Founders, founders):
		return fmt.Errorf("the data directory was restored for a cluster of the nodes %d, but PEERS has the nodes %d: start it with the same PEERS, or delete %s and restore again", s.Founders, founders, SeedName)
	}
	return nil
}
