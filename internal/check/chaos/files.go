//go:build linux

package chaos

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// CopyDir copies the files of a data directory to a new directory, as a backup would, with their times (cp -a). The socket that
// a killed process has left is none of them. The node that uses it must be down.
func CopyDir(to, from string) error {
	if err := os.Mkdir(to, 0o700); err != nil {
		return err
	}
	files, err := os.ReadDir(from)
	for _, f := range files {
		if f.Type().IsRegular() {
			err = errors.Join(err, copyFile(filepath.Join(to, f.Name()), filepath.Join(from, f.Name())))
		}
	}
	return err
}

func copyFile(to, from string) error {
	b, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	info, err := os.Stat(from)
	if err == nil {
		err = os.WriteFile(to, b, info.Mode().Perm())
	}
	if err == nil {
		err = os.Chtimes(to, info.ModTime(), info.ModTime())
	}
	return err
}

// Rot flips one bit in a file at each occurrence of marker, in the byte offset bytes behind its
// end, as bit rot does. A store that keeps several versions of a record has several
// occurrences.
func Rot(path, marker string, offset int) error {
	b, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	rotten := 0
	for at := 0; ; rotten++ {
		i := bytes.Index(b[at:], []byte(marker))
		if i < 0 {
			break
		}
		at += i + len(marker)
		b[at+offset] ^= 1
	}
	if rotten == 0 {
		return fmt.Errorf("chaos: %s holds no %q", path, marker)
	}
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteAt(b, 0)
	return errors.Join(err, f.Close())
}

// replaceFile writes a file that others read, so that they never find a part of it.
func replaceFile(path string, content []byte) error {
	if err := os.WriteFile(path+"~", content, 0o600); err != nil {
		return err
	}
	return os.Rename(path+"~", path)
}
