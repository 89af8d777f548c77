//go:build unix && !aix && !solaris

package storage

import (
	"errors"
	"fmt"
	"os"
	"syscall"
)

// tryLock takes an exclusive lock on f without waiting and reports whether it
// got it. The lock ends with the file descriptor.
func tryLock(f *os.File) (bool, error) {
	err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if errors.Is(err, syscall.EWOULDBLOCK) {
		return false, nil
	}
	return err == nil, err
}

// exchange exchanges the names of two files, where that can be done.
var exchange = exchangeNames

// rename gives f the name of the data file, and the latter that of the spare one.
func (s files) rename(*file) error {
	if s.data == nil {
		return os.Rename(s.sparePath(), s.path)
	}
	return exchange(s.sparePath(), s.path)
}

// syncDir makes the entries of dir durable.
func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return fmt.Errorf("storage: %w", err)
	}
	err = d.Sync()
	if closeErr := d.Close(); err == nil {
		err = closeErr
	}
	if err != nil {
		return fmt.Errorf("storage: sync directory: %w", err)
	}
	return nil
}
