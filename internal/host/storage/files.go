package storage

import (
	"cmp"
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

// Spare opens the spare file, which the caller closes.
func (s files) Spare() (journal.File, error) {
	spare := s.sparePath()
	if err := unlinkSame(spare, s.path); err != nil {
		return nil, err
	}
	f, err := os.OpenFile(spare, os.O_RDWR|os.O_CREATE, fileMode)
	if err != nil {
		return nil, err
	}
	return &file{f, s.Store, false}, nil
}

// sparePath returns where the next data file is written. The first one has another name: a directory
// with a spare file has had a data file (see [CheckNew]).
func (s files) sparePath() string {
	if s.creating {
		return s.path + draftSuffix
	}
	return s.path + spareSuffix
}

// makeSpare makes an empty spare file, and ends the creation of the directory.
func (s *Store) makeSpare() error {
	s.creating = false
	f, err := files{s}.Spare()
	if err != nil {
		return err
	}
	if err := f.Close(); err != nil {
		return err
	}
	return syncDir(s.dir)
}

// Exchange exchanges the names. Like the data file, f is locked from then on.
func (s files) Exchange(f journal.File) error {
	spare := f.(*file)
	if locked, err := tryLock(spare.File); err != nil || !locked {
		return cmp.Or(err, inUse(s.dir))
	}
	spare.isData = true
	if err := s.step("file renamed", func() error { return s.rename(spare) }); err != nil {
		return err
	}
	s.data = spare
	return nil
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
