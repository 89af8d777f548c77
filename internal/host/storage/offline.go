package storage

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// Directory is a data directory from which no node runs: it is locked until Close.
type Directory struct {
	dir  string
	lock *os.File
}

// OpenDirectory locks a data directory, and creates it if it does not exist. It fails with
// [ErrInUse] while a node runs from it.
func OpenDirectory(dir string) (*Directory, error) {
	if dir == "" {
		return nil, errors.New("storage: no data directory")
	}
	if err := makeDir(dir); err != nil {
		return nil, err
	}
	lock, err := lockDir(dir)
	if err != nil {
		return nil, err
	}
	return &Directory{dir: dir, lock: lock}, nil
}

// Close releases the directory.
func (d *Directory) Close() error { return d.lock.Close() }

// HasData reports whether a node was ever started from the directory: there is a data file. It fails if that is not a
// regular file.
func HasData(dir string) (bool, error) {
	path := filepath.Join(dir, FileName)
	info, err := os.Lstat(path)
	return checkFile(path, info, err)
}

// checkFile reports whether there is a data file, by what [os.Lstat] has returned.
func checkFile(path string, info fs.FileInfo, err error) (exists bool, _ error) {
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return false, nil
	case err != nil:
		return false, fmt.Errorf("storage: data file: %w", err)
	case info.Mode()&fs.ModeSymlink != 0: // the names of a journal and of its spare file are exchanged
		return false, fmt.Errorf("storage: %s is a symbolic link, and the data file must lie in the data directory: "+
			"replace the link by the file, or have DATA_DIR name the directory in which the file is to lie", path)
	case !info.Mode().IsRegular():
		return false, fmt.Errorf("storage: %s is not a regular file", path)
	}
	return true, nil
}

// CheckNew returns an error if a directory without a data file had one: other files show it.
func CheckNew(dir string) error {
	hasData, err := HasData(dir)
	if err != nil || hasData {
		return err
	}
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("storage: data directory: %w", err)
	}
	for _, e := range entries {
		if e.Name() == FileName+spareSuffix || strings.HasPrefix(e.Name(), FileName+asideSuffix) {
			return fmt.Errorf("storage: the data directory %s has %s, so a node ran there, and its data file %s is gone: put that back, or restore a backup (isotone restore); "+
				"for a node without any data, name another DATA_DIR, or move both files away", dir, e.Name(), FileName)
		}
	}
	return nil
}

// Written returns when the data file was written last, but for starts, by the clock of its machine, and never a time to come.
func (d *Directory) Written() (time.Time, error) {
	info, err := os.Stat(filepath.Join(d.dir, FileName))
	if err != nil {
		return time.Time{}, err
	}
	if now := time.Now(); info.ModTime().After(now) {
		return now, nil
	}
	return info.ModTime(), nil
}

// Read returns what the data file holds, without counting a start. Errors are those of [Open].
func (d *Directory) Read() (Recovered, error) {
	s := &Store{dir: d.dir, path: filepath.Join(d.dir, FileName)}
	if _, err := os.Lstat(s.path); err != nil {
		return Recovered{}, fmt.Errorf("storage: %s holds no data of a node: %w", d.dir, err)
	}
	r, err := s.read()
	return r, errors.Join(err, s.release())
}

// SetAside renames the data file, and returns its new name. A node that is started from the
// directory after that has an empty one.
func (d *Directory) SetAside() (string, error) {
	path := filepath.Join(d.dir, FileName)
	for n := 1; ; n++ {
		to := fmt.Sprint(path, asideSuffix, n)
		switch _, err := os.Lstat(to); {
		case err == nil:
			continue
		case !errors.Is(err, fs.ErrNotExist):
			return "", fmt.Errorf("storage: set the data aside: %w", err)
		}
		if err := os.Rename(path, to); err != nil {
			return "", fmt.Errorf("storage: set the data aside: %w", err)
		}
		return to, syncDir(d.dir)
	}
}

// SyncDir makes the names of the files in dir durable.
func SyncDir(dir string) error { return syncDir(dir) }
