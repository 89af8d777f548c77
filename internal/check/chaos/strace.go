//go:build linux

package chaos

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"
)

// straceAttachTimeout bounds how long strace may take to attach to all threads.
const straceAttachTimeout = 10 * time.Second

// StraceDenied returns why strace cannot attach to a process here, or "".
var StraceDenied = sync.OnceValue(func() string {
	if _, err := exec.LookPath("strace"); err != nil {
		return "needs strace to break fsync: install it (apt-get install strace)"
	}
	sleep := exec.Command("sleep", "10")
	if err := sleep.Start(); err != nil {
		return err.Error()
	}
	defer func() { _ = sleep.Process.Kill(); _ = sleep.Wait() }()
	try := []string{"-s", "INT", "0.3", "strace", "-o", "/dev/null", "-p", fmt.Sprint(sleep.Process.Pid)}
	if out, _ := exec.Command("timeout", try...).CombinedOutput(); bytes.Contains(out, []byte("not permitted")) {
		return fmt.Sprintf("strace may not attach to a process here (kernel.yama.ptrace_scope=0 or root is needed): %s", out)
	}
	return ""
})

// InjectSyncs has strace tamper with the fsyncs and fdatasyncs of a running node: inject is
// what follows "-e inject=fsync,fdatasync:". It does not wait until strace has attached. The
// tampering ends with the returned process or with the node.
func InjectSyncs(t testing.TB, n *Node, inject string) *Process {
	t.Helper()
	logPath := fmt.Sprintf("%s.strace.log", n.logPath)
	p, err := Run("strace of "+n.proc.Name, logPath, []string{"PATH=" + os.Getenv("PATH")}, []string{
		"strace", "-f", "-p", fmt.Sprint(n.proc.PID()), "-e", "trace=fsync,fdatasync", "-e", "inject=fsync,fdatasync:" + inject,
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
	return p
}

// DelaySyncs has every fsync and fdatasync of a node take so much longer from its next start on. It
// skips the test where strace is missing or not permitted. Only these calls are traced, so that all
// others are as fast as ever.
func DelaySyncs(t testing.TB, n *Node, delay time.Duration) {
	t.Helper()
	if denied := StraceDenied(); denied != "" {
		t.Skip(denied)
	}
	n.Prefix = []string{
		"strace", "--daemonize", "--follow-forks", "--seccomp-bpf", "-qq", "--output=/dev/null", "--trace=fsync,fdatasync",
		fmt.Sprintf("--inject=fsync,fdatasync:delay_exit=%d", delay.Microseconds()),
	}
}

// FailSyncs makes every fsync and fdatasync of a running node fail with EIO from now
// on, until the node ends. It needs strace and the right to attach it, and skips the
// test where one is missing.
func FailSyncs(t testing.TB, n *Node) {
	t.Helper()
	if denied := StraceDenied(); denied != "" {
		t.Skip(denied)
	}
	p := InjectSyncs(t, n, "error=EIO")
	for deadline := time.Now().Add(straceAttachTimeout); ; time.Sleep(pollInterval) {
		switch {
		case tracer(n.proc) == p.PID() || n.Exited():
			return
		case p.Exited() && strings.Contains(p.Log(), "INJECTED"):
			return // with the node, which has failed already
		case p.Exited():
			t.Fatalf("strace has ended:\n%s", p.Log())
		case time.Now().After(deadline):
			t.Fatalf("strace did not attach within %v:\n%s", straceAttachTimeout, p.Log())
		}
	}
}

// tracer returns the ID of the process that traces p, or 0.
func tracer(p *Process) int {
	value, err := p.status("TracerPid")
	if err != nil {
		return 0
	}
	return int(value)
}
