package backup

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// Note says that a backup was restored. It lies beside the file of the backup, one for each node, so that a second restoration
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

// WriteNote writes the note of a node beside the backup at path, or beside the file that path is a symbolic link to;
// see [Write]. It replaces any other.
func WriteNote(path string, node uint64, n Note) error {
	n.Format, n.At = Format, n.At.UTC()
	n.Sum = n.sum()
	path, err := resolve(path)
	if err != nil {
		return err
	}
	return Write(NotePath(path, node), encode(n), true, nil)
}

var errNoFile = errors.New("not a regular file")

// resolve follows symbolic links. A pipe, such as /dev/stdin, is no place beside which notes lie.
func resolve(path string) (string, error) {
	info, err := os.Stat(path)
	switch {
	case err != nil:
		return "", err
	case !info.Mode().IsRegular():
		return "", fmt.Errorf("%s: %w", path, errNoFile)
	}
	return filepath.EvalSymlinks(path)
}

// notesMax bounds the notes that ReadNotes reads: more than a directory of backups has, of which few are ever restored.
const notesMax = 1000

// ReadNotes returns the notes of all nodes about the backup with that digest which lie beside the file at path. They may
// be named after a copy of the backup. Symbolic links are followed, as in [WriteNote].
func ReadNotes(path, digest string) (notes []Note, err error) {
	path, err = resolve(path)
	if errors.Is(err, errNoFile) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	dir := filepath.Dir(path)
	files, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	count := 0
	for _, f := range files {
		i := strings.LastIndex(f.Name(), notePrefix)
		if i < 0 {
			continue
		}
		backup, node := f.Name()[:i], f.Name()[i+len(notePrefix):]
		isOwn := backup == filepath.Base(path)
		if _, err := strconv.ParseUint(node, 10, 64); err != nil || !isOwn && f.Type()&^os.ModeSymlink != 0 {
			continue
		}
		if count++; count > notesMax {
			return nil, fmt.Errorf("%s has more than %d notes of restorations: move the backup and its own notes to another directory, or give the largest timestamp of any earlier restored cluster with --floor, and go on with --force", dir, notesMax)
		}
		n, err := readNote(filepath.Join(dir, f.Name()), digest, isOwn)
		if err != nil {
			return nil, err
		}
		if n.Backup == digest {
			notes = append(notes, n)
		}
	}
	return notes, nil
}

// readNote reads a note. One that is named after another file and does not have the digest in it is about another backup, or
// no note at all, and may be damaged.
func readNote(file, digest string, isOwn bool) (n Note, err error) {
	const what = "which says where a cluster began that was restored before"
	b, err := Read(file)
	if err != nil {
		return Note{}, fmt.Errorf("%s, %s, cannot be read: %w; run the command as a user who may read it", file, what, err)
	}
	if !isOwn && !bytes.Contains(b, []byte(digest)) {
		return Note{}, nil
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
