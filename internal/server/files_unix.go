//go:build unix

package server

import "syscall"

// OpenFiles returns how many files this process may have open, or 0 if that is unknown. The Go
// runtime has raised the soft limit to the hard one.
func OpenFiles() uint64 {
	var limit syscall.Rlimit
	if syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit) != nil {
		return 0
	}
	return uint64(limit.Cur)
}
