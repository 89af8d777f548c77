package child

import (
	"os/exec"
	"runtime"
	"sync"
	"syscall"
)

func attributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

// starts passes commands to the one thread that starts all of them. The kernel sends Pdeathsig when the
// thread that forked ends, so that thread lives as long as this process.
var starts = sync.OnceValue(func() chan<- func() {
	calls := make(chan func())
	go callAll(calls)
	return calls
})

func callAll(calls <-chan func()) {
	runtime.LockOSThread()
	for call := range calls {
		call()
	}
}

func start(cmd *exec.Cmd) error {
	started := make(chan error)
	starts() <- func() { started <- cmd.Start() }
	return <-started
}
