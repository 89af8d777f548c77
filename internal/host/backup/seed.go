package backup

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

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

// ReadSeed returns the seed in a data directory, nil if there is none.
func ReadSeed(dir string) (*Seed, error) {
	path := filepath.Join(dir, SeedName)
	b, err := Read(path)
	if errors.Is(err, os.ErrNotExist) {
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

// RemoveSeed removes the seed in a data directory, if there is one.
func RemoveSeed(dir string) error {
	err := os.Remove(filepath.Join(dir, SeedName))
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	return errors.Join(err, storage.SyncDir(dir))
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
