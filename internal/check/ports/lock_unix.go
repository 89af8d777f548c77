//go:build unix

package ports

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
	"syscall"
)

// lockFile is empty. A lock on the byte at an offset reserves the port of that number. The kernel ends
// the locks with the process; so the file stays open until then.
var lockFile = sync.OnceValues(func() (*os.File, error) {
	path := filepath.Join(os.TempDir(), fmt.Sprintf("isotone-ports-%d", os.Getuid()))
	return os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
})

// lock reports whether no other process has any of the ports, and takes them.
func lock(first, count int) (bool, error) {
	err := setLock(syscall.F_WRLCK, first, count)
	if errors.Is(err, syscall.EAGAIN) || errors.Is(err, syscall.EACCES) {
		return false, nil
	}
	return err == nil, err
}

// unlock gives all ports back.
func unlock() error { return setLock(syscall.F_UNLCK, 0, 0) }

func setLock(kind int16, first, count int) error {
	f, err := lockFile()
	if err != nil {
		return err
	}
	return syscall.FcntlFlock(f.Fd(), syscall.F_SETLK, &syscall.Flock_t{Type: kind, Whence: io.SeekStart, Start: int64(first), Len: int64(count)})
}
