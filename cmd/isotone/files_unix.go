//go:build unix

package main

import (
	"os"
	"syscall"
)

// openFiles returns how many files this process may have open, or 0 if that is unknown. The Go
// runtime has raised the soft limit to the hard one.
func openFiles() uint64 {
	var limit syscall.Rlimit
	if syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit) != nil {
		return 0
	}
	return uint64(limit.Cur)
}

// isOwn reports whether a file is of the user that runs this program.
func isOwn(path string) bool {
	info, err := os.Lstat(path)
	if err != nil {
		return false
	}
	owner, ok := info.Sys().(*syscall.Stat_t)
	return ok && int(owner.Uid) == os.Geteuid()
}
