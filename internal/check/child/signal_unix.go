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

// KillGroup ends what is left in the process group of a process that was started by [Start], such as a server that a script had started.
func KillGroup(pid int) error {
	if err := syscall.Kill(-pid, syscall.SIGKILL); err != syscall.ESRCH { // nothing is left
		return err
	}
	return nil
}
