package backup

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
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
func NotePath(path string, node uint64) string { return fmt.Sprint(path, notePrefix, node) }

const notePrefix = ".restored-"

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

// ReadNotes returns the notes of all nodes that lie beside the backup at path and are about the backup with that digest.
func ReadNotes(path, digest string) (notes []Note, err error) {
	files, err := os.ReadDir(filepath.Dir(path))
	if err != nil {
		return nil, err
	}
	for _, f := range files {
		node, isNote := strings.CutPrefix(f.Name(), filepath.Base(path)+notePrefix)
		if _, err := strconv.ParseUint(node, 10, 64); err != nil || !isNote {
			continue
		}
		n, err := readNote(filepath.Join(filepath.Dir(path), f.Name()))
		if err != nil {
			return nil, err
		}
		if n.Backup == digest {
			notes = append(notes, n)
		}
	}
	return notes, nil
}

func readNote(file string) (n Note, err error) {
	const what = "which says where a cluster began that was restored before"
	b, err := Read(file)
	if err != nil {
		return Note{}, fmt.Errorf("%s, %s, cannot be read: %w; run the command as a user who may read it", file, what, err)
	}
	err = decode(b, &n, "a note of a restoration")
	if err == nil && n.Sum != n.sum() {
		err = errors.New("its checksum does not match")
	}
	if err != nil {
		return Note{}, fmt.Errorf("%s, %s, cannot be used: %w; give the largest timestamp of that cluster with --floor, and go on with --force", file, what, err)
	}
	return n, nil
}
