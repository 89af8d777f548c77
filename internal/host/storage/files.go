package storage

import (
	"errors"
	"io/fs"
	"math/rand/v2"
	"os"

	"github.com/isotone/isotone/internal/core/journal"
)

// spareSectors is how many sectors a new journal has beyond the state: 1 MiB, which a disk
// writes within some milliseconds, and some 2,000 Saves fill, in minutes. Tests make it smaller.
var spareSectors int64 = 1 << 20 / journal.SectorBytes

func (s *Store) journalOptions() journal.Options {
	return journal.Options{Files: files{s}, Salt: rand.Uint64, SpareSectors: spareSectors}
}

// files are those of a directory, for the journal in it.
type files struct{ *Store }

// Spare opens the spare file, which the caller closes. Like the data file, it is locked.
func (s files) Spare() (journal.File, error) {
	spare := s.sparePath()
	if err := unlinkSame(spare, s.path); err != nil {
		return nil, err
	}
	f, err := os.OpenFile(spare, os.O_RDWR|os.O_CREATE, fileMode)
	if err != nil {
		return nil, err
	}
	locked, err := awaitLock(f)
	if err == nil && (!locked || s.data == nil && !isDraft(f, s.path)) {
		err = inUse(s.dir)
	}
	if err != nil {
		_ = f.Close()
		return nil, err
	}
	return &file{f, s.Store, false}, nil
}

// isDraft reports whether f, which is locked, still has the name of the first data file and there is no
// data file yet. Otherwise another process has created the directory meanwhile: somebody deleted the
// file that both would have locked.
func isDraft(f *os.File, path string) bool {
	_, err := os.Lstat(path)
	return errors.Is(err, fs.ErrNotExist) && isNamed(f, path+draftSuffix)
}

// isNamed reports whether f has this name.
func isNamed(f *os.File, path string) bool {
	opened, err := f.Stat()
	if err != nil {
		return false
	}
	named, err := os.Lstat(path)
	return err == nil && os.SameFile(opened, named)
}

// sparePath returns where the next data file is written. The first one has another name: a directory
// with a spare file has had a data file (see [CheckNew]).
func (s files) sparePath() string {
	if s.data == nil {
		return s.path + draftSuffix
	}
	return s.path + spareSuffix
}

// Exchange exchanges the names. Where that cannot be done, it renames the file, and leaves an empty spare
// file, which shows that there is a data file.
func (s files) Exchange(f journal.File) error {
	spare := f.(*file)
	spare.isData = true
	if err := s.step("file renamed", func() error { return s.rename(spare) }); err != nil {
		return err
	}
	isFirst := s.data == nil
	s.data = spare
	if isFirst {
		return nil // the journal makes one
	}
	return touch(s.path + spareSuffix)
}

// touch creates a file if there is none.
func touch(path string) error {
	f, err := os.OpenFile(path, os.O_RDONLY|os.O_CREATE, fileMode)
	if err != nil {
		return err
	}
	return f.Close()
}

// Sync makes the names in the directory durable.
func (s files) Sync() error {
	return s.step("directory synced", func() error { return syncDir(s.dir) })
}

// file is the data file of a journal, or the spare one.
type file struct {
	*os.File
	store  *Store
	isData bool
}

// Close closes f. It may be closed already, by rename on Windows.
func (f *file) Close() error {
	if err := f.File.Close(); !errors.Is(err, os.ErrClosed) {
		return err
	}
	return nil
}

func (f *file) Size() (int64, error) {
	info, err := f.Stat()
	if err != nil {
		return 0, err
	}
	return info.Size(), nil
}

func (f *file) WriteAt(b []byte, offset int64) (n int, err error) {
	if !f.isData {
		return f.File.WriteAt(b, offset)
	}
	err = f.store.step("record written", func() error {
		n, err = f.File.WriteAt(b, offset)
		return err
	})
	return n, err
}

func (f *file) Truncate(size int64) error {
	return f.store.step("file written", func() error { return f.File.Truncate(size) })
}

func (f *file) SyncData() error {
	return f.store.step("record synced", func() error { return syncData(f.File) })
}

func (f *file) Sync() error { return f.store.step("file synced", f.File.Sync) }

// unlinkSame deletes the name spare if it is a symbolic link, or if somebody has made it another name of the data file.
func unlinkSame(spare, path string) error {
	a, err := os.Lstat(spare)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if a.Mode()&fs.ModeSymlink == 0 {
		b, err := os.Stat(path)
		if errors.Is(err, fs.ErrNotExist) {
			return nil // it is being created
		}
		if err != nil || !os.SameFile(a, b) {
			return err
		}
	}
	return os.Remove(spare)
}
