// Package strace breaks the disk of a process: it has strace(1) delay its fsyncs and fdatasyncs, or have them fail.
package strace

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"time"

	"github.com/isotone/isotone/internal/check/child"
)

const (
	// attachTimeout and detachTimeout bound how long strace may take to attach to all threads and to detach, endTimeout how long it
	// may take to end after SIGKILL.
	attachTimeout = 10 * time.Second
	detachTimeout = 10 * time.Second
	endTimeout    = 20 * time.Second
	// leftWait bounds the wait for the output of what a command has left behind.
	leftWait = time.Second
	poll     = 5 * time.Millisecond
)

// Denied returns why strace cannot attach to a process here, or "".
var Denied = sync.OnceValue(denied)

func denied() string {
	if _, err := exec.LookPath("strace"); err != nil {
		return "needs strace to break fsync: install it (apt-get install strace)"
	}
	sleep := exec.Command("sleep", "10")
	if err := sleep.Start(); err != nil {
		return err.Error()
	}
	defer func() { _ = sleep.Process.Kill(); _ = sleep.Wait() }()
	out, err := output("timeout", "-s", "INT", "0.3", "strace", "-o", "/dev/null", "-p", fmt.Sprint(sleep.Process.Pid))
	switch {
	case err != nil:
		return err.Error()
	case bytes.Contains(out, []byte("not permitted")):
		return fmt.Sprintf("strace may not attach to a process here (kernel.yama.ptrace_scope=0 or root is needed): %s", out)
	}
	return ""
}

// output runs a command, whatever its exit code, and returns what it prints. It ends what the command leaves behind: strace that is
// interrupted before it attaches leaves a process that is stopped for ever.
func output(name string, args ...string) ([]byte, error) {
	cmd := exec.Command(name, args...)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr, cmd.WaitDelay = &out, &out, leftWait
	if err := child.Start(cmd); err != nil {
		return nil, err
	}
	_ = cmd.Wait()
	return out.Bytes(), child.KillGroup(cmd.Process.Pid)
}

// Inject has strace tamper with the fsyncs and fdatasyncs of a process: how is what follows "-e inject=fsync,fdatasync:".
// It does not wait until strace has attached; see [Attached]. The output of strace, with a line for each of these calls, is
// appended to the file at logPath. The tampering ends by [Detach], or with the process.
func Inject(p *child.Process, logPath, how string) (*child.Process, error) {
	return child.Run("strace of "+p.Name, logPath, []string{"PATH=" + os.Getenv("PATH")}, []string{
		"strace", "-f", "-qq", "-p", fmt.Sprint(p.PID()), "-e", "trace=fsync,fdatasync", "-e", "inject=fsync,fdatasync:" + how,
	})
}

// Injected reports whether strace has tampered with a call.
func Injected(tracer *child.Process) bool { return strings.Contains(tracer.Log(), "INJECTED") }

// Attached waits until strace has attached to a process, or the process has ended.
func Attached(tracer, p *child.Process) error {
	attached := fmt.Sprintf("\nTracerPid:\t%d\n", tracer.PID())
	for late := time.Now().Add(attachTimeout); ; time.Sleep(poll) {
		status, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.PID()))
		switch {
		case bytes.Contains(status, []byte(attached)), p.Exited(), tracer.Exited() && Injected(tracer): // it ends with the process
			return nil
		case tracer.Exited():
			return fmt.Errorf("%s has ended:\n%s", tracer.Name, tracer.Log())
		case time.Now().After(late):
			return fmt.Errorf("%s has not attached after %v:\n%s", tracer.Name, attachTimeout, tracer.Log())
		}
	}
}

// Detach has strace leave the process as it is, and end.
func Detach(tracer *child.Process) error {
	err := tracer.Signal(os.Interrupt)
	_, _ = tracer.WaitExit(detachTimeout)
	err = errors.Join(err, tracer.KillGroup()) // before it attaches, strace tries out what it can on a process of its own
	_, late := tracer.WaitExit(endTimeout)
	return errors.Join(err, late)
}
