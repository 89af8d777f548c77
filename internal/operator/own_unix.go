//go:build unix

package operator

import (
	"os"
	"syscall"
)

// isOwn reports whether a file is of the user that runs this program.
func isOwn(path string) bool {
	info, err := os.Lstat(path)
	if err != nil {
		return false
	}
	owner, ok := info.Sys().(*syscall.Stat_t)
	return ok && int(owner.Uid) == os.Geteuid()
}
