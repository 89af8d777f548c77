package backup

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"time"
)

// Note says that a backup was restored. It lies beside the backup, one for each node, so that a second restoration
// begins above the first one, which the backup itself knows nothing of.
type Note struct {
	Format int `json:"format"`
	// Backup is the digest of the backup.
	Backup string `json:"backup"`
	// Floor is where the restored cluster begins, in unix nanoseconds, and At when it was prepared, by the
	// clock of that machine.
	Floor uint64    `json:"floor,string"`
	At    time.Time `json:"at"`
	// Sum is the SHA-256 of the rest in hexadecimal digits.
	Sum string `json:"sum"`
}

// NotePath returns where the note of a node lies.
func NotePath(path string, node uint64) string { return fmt.Sprintf("%s.restored-%d", path, node) }

func (n *Note) sum() string {
	h := sha256.New()
	fmt.Fprintf(h, "note %d\n%s\n%d\n%d\n", n.Format, n.Backup, n.Floor, n.At.UnixNano())
	return text(h)
}

// WriteNote writes the note of a node beside the backup at path; see [Write]. It replaces any other.
func WriteNote(path string, node uint64, n Note) error {
	n.Format, n.At = Format, n.At.UTC()
	n.Sum = n.sum()
	return Write(NotePath(path, node), encode(n), true, nil)
}

// ReadNote returns the note of a node beside the backup at path; ok is false if there is none of the backup with
// that digest.
func ReadNote(path string, node uint64, digest string) (n Note, ok bool, err error) {
	file := NotePath(path, node)
	b, err := Read(file)
	if errors.Is(err, os.ErrNotExist) {
		return Note{}, false, nil
	}
	if err == nil {
		err = decode(b, &n, "a note of a restoration")
	}
	if err == nil && n.Sum != n.sum() {
		err = errors.New("its checksum does not match")
	}
	if err != nil {
		return Note{}, false, fmt.Errorf("%s, which says where the cluster began that was restored before, cannot be used: %w; "+
			"delete it, and give the largest timestamp of that cluster with --floor", file, err)
	}
	return n, n.Backup == digest, nil
}
