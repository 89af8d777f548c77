//go:build unix

package child

import (
	"os"
	"syscall"
)

// Stop and Cont are the signals that freeze a process and have it go on; nil where there are none.
var (
	Stop os.Signal = syscall.SIGSTOP
	Cont os.Signal = syscall.SIGCONT
)
