package storage

import (
	"cmp"
	"errors"
	"os"
	"time"

	"golang.org/x/sys/windows"
)

// tryLock takes an exclusive lock on f without waiting and reports whether it got it. It locks a byte
// far behind the end, because Windows keeps others from reading what is locked. The lock ends when
// the file is closed.
func tryLock(f *os.File) (bool, error) {
	const flags = windows.LOCKFILE_EXCLUSIVE_LOCK | windows.LOCKFILE_FAIL_IMMEDIATELY
	err := windows.LockFileEx(windows.Handle(f.Fd()), flags, 0, 1, 0, &windows.Overlapped{OffsetHigh: 1 << 30})
	if errors.Is(err, windows.ERROR_LOCK_VIOLATION) {
		return false, nil
	}
	return err == nil, err
}

// rename gives f the name of the data file, which is deleted. Windows renames no file that is open, so
// both are closed, and f is opened again.
func (s files) rename(f *file) error {
	from, to := f.Name(), s.path
	if err := f.File.Close(); err != nil {
		return err
	}
	if s.data != nil {
		_ = s.data.Close() // it is not needed any more
	}
	source, err := windows.UTF16PtrFromString(from)
	if err != nil {
		return err
	}
	target, err := windows.UTF16PtrFromString(to)
	if err != nil {
		return err
	}
	if err := move(source, target); err != nil {
		return &os.LinkError{Op: "rename", Old: from, New: to, Err: err}
	}
	opened, err := os.OpenFile(to, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	f.File = opened
	if locked, err := awaitLock(opened); err != nil || !locked {
		return cmp.Or(err, inUse(s.dir))
	}
	return nil
}

// move renames a file and replaces another. It waits for lockWait while other programs, such as virus
// scanners, have one of them open.
func move(source, target *uint16) error {
	for attempts := int(lockWait / lockRetry); ; attempts-- {
		err := windows.MoveFileEx(source, target, windows.MOVEFILE_REPLACE_EXISTING|windows.MOVEFILE_WRITE_THROUGH)
		isBusy := errors.Is(err, windows.ERROR_SHARING_VIOLATION) || errors.Is(err, windows.ERROR_ACCESS_DENIED)
		if !isBusy || attempts == 0 {
			return err
		}
		time.Sleep(lockRetry)
	}
}

// syncDir does nothing: Windows cannot sync a directory, and rename returns when the name is on the disk.
func syncDir(string) error { return nil }
