package demo

import (
	"os/exec"
	"runtime"
	"sync"
	"syscall"
)

// attributes has the kernel kill the process when this one ends, however that ends. The process
// group of its own keeps Ctrl-C at the terminal from it.
func attributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

// spawns passes commands to the one thread that starts all of them: the kernel sends Pdeathsig when
// the thread that forked ends.
var spawns = sync.OnceValue(func() chan<- func() {
	calls := make(chan func())
	go func() {
		runtime.LockOSThread()
		for call := range calls {
			call()
		}
	}()
	return calls
})

func spawn(cmd *exec.Cmd) error {
	started := make(chan error)
	spawns() <- func() { started <- cmd.Start() }
	return <-started
}
