package storage

import (
	"errors"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// syncData makes what was written to f durable, and of its metadata only what is needed to read
// that: the times of the file are not.
func syncData(f *os.File) error {
	for {
		err := syscall.Fdatasync(int(f.Fd()))
		switch {
		case err == nil:
			return nil
		case !errors.Is(err, syscall.EINTR):
			return &os.PathError{Op: "fdatasync", Path: f.Name(), Err: err}
		}
	}
}

// exchangeNames gives the file at from the name to, and the file at to the name from, in one step. On
// a file system that cannot do that, the file at to is deleted.
func exchangeNames(from, to string) error {
	err := unix.Renameat2(unix.AT_FDCWD, from, unix.AT_FDCWD, to, unix.RENAME_EXCHANGE)
	if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOSYS) || errors.Is(err, unix.EOPNOTSUPP) {
		return os.Rename(from, to)
	}
	if err != nil {
		return &os.LinkError{Op: "exchange", Old: from, New: to, Err: err}
	}
	return nil
}
