package storage

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"
)

const (
	// FileName is the one data file in the data directory.
	FileName = "isotone.db"
	// lockName is an empty file that is locked while the directory is in use. It is separate
	// from the data file because that is replaced by a rename.
	lockName = "isotone.lock"
	// draftSuffix is added to the name of the first data file until it is complete.
	draftSuffix = ".new"
	// spareSuffix is added to the name of the file that becomes the next journal. Nothing reads it.
	spareSuffix = ".spare"
	// asideSuffix and a number are added to the name of a data file that was set aside.
	asideSuffix = ".before-recovery-"

	dirMode  = 0o700
	fileMode = 0o600

	// lockWait is how long Open waits for the directory to be released: long enough for a
	// previous process that is just exiting, too short to look like a hang.
	lockWait  = time.Second
	lockRetry = 50 * time.Millisecond
)

// makeDir creates dir and its missing parents. The entry of each is durable in
// its parent when makeDir returns.
func makeDir(dir string) error {
	switch info, err := os.Stat(dir); {
	case err == nil && !info.IsDir():
		return fmt.Errorf("storage: data directory %s is not a directory", dir)
	case err == nil:
		return nil
	case !errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("storage: data directory: %w", err)
	}
	parent := filepath.Dir(filepath.Clean(dir))
	if err := makeDir(parent); err != nil {
		return err
	}
	if err := os.Mkdir(dir, dirMode); err != nil && !errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("storage: data directory: %w", err)
	}
	return syncDir(parent)
}

// lockDir takes the lock of dir, which lasts until the returned file is closed
// or the process ends. It waits for lockWait, then fails with [ErrInUse].
func lockDir(dir string) (*os.File, error) {
	f, err := os.OpenFile(filepath.Join(dir, lockName), os.O_RDWR|os.O_CREATE, fileMode)
	if err != nil {
		return nil, fmt.Errorf("storage: lock: %w", err)
	}
	locked, err := awaitLock(f)
	switch {
	case err != nil:
		_ = f.Close()
		return nil, fmt.Errorf("storage: lock %s: %w", f.Name(), err)
	case !locked:
		_ = f.Close()
		return nil, inUse(dir)
	}
	return f, nil
}

// onWait is for tests: it is called when a lock is waited for.
var onWait = func() {}

// awaitLock locks f, and reports whether it could within lockWait.
func awaitLock(f *os.File) (bool, error) {
	for attempts := int(lockWait / lockRetry); ; attempts-- {
		if locked, err := tryLock(f); err != nil || locked || attempts == 0 {
			return locked, err
		}
		onWait()
		time.Sleep(lockRetry)
	}
}

func inUse(dir string) error {
	return fmt.Errorf("storage: data directory %s is %w", dir, ErrInUse)
}
