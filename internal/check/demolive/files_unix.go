//go:build unix

package demolive

import "syscall"

// openFiles returns the limit of open files; 0: unknown. The Go runtime has raised the soft limit to the hard one, and
// does so in the node.
func openFiles() uint64 {
	var limit syscall.Rlimit
	if syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit) != nil {
		return 0
	}
	return uint64(limit.Cur)
}
