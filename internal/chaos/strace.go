//go:build linux

package chaos

import (
	"fmt"
	"os"
	"os/exec"
	"testing"
	"time"
)

// straceAttachTimeout bounds how long strace may take to get hold of all threads.
const straceAttachTimeout = 10 * time.Second

// FailSyncs makes every fsync and fdatasync of a running node fail with EIO from now
// on, until the node ends. It needs strace and the right to attach it, and skips the
// test where one is missing.
func FailSyncs(t testing.TB, n *Node) {
	t.Helper()
	strace, err := exec.LookPath("strace")
	if err != nil {
		t.Skip("needs strace to make fsync fail: install it (apt-get install strace)")
	}
	logPath := fmt.Sprintf("%s.strace.log", n.logPath)
	p, err := Run("strace of "+n.proc.Name, logPath, []string{"PATH=" + os.Getenv("PATH")}, []string{
		strace, "-f", "-p", fmt.Sprint(n.proc.PID()), "-e", "trace=fsync,fdatasync", "-e", "inject=fsync,fdatasync:error=EIO",
	})
	if err != nil {
		t.Fatal(err)
	}
	p.ExpectExit() // it ends with the node
	t.Cleanup(func() {
		if !p.Exited() {
			_ = p.Kill()
			_, _ = p.WaitExit(ExitTimeout)
		}
	})
	for deadline := time.Now().Add(straceAttachTimeout); ; time.Sleep(pollInterval) {
		switch {
		case tracer(n.proc) == p.PID() || n.Exited():
			return
		case p.Exited():
			t.Skipf("strace may not attach to a process here (kernel.yama.ptrace_scope=0 or root is needed):\n%s", p.Log())
		case time.Now().After(deadline):
			t.Fatalf("strace did not attach within %v:\n%s", straceAttachTimeout, p.Log())
		}
	}
}

// tracer returns the id of the process that traces p, or 0.
func tracer(p *Process) int {
	value, err := p.status("TracerPid")
	if err != nil {
		return 0
	}
	return int(value)
}
