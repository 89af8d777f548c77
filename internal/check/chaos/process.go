//go:build linux

package chaos

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/isotone/isotone/internal/check/child"
)

// Process is one run of a command, of which is known whether it may end.
type Process struct {
	*child.Process

	mu sync.Mutex
	// mayEnd: the process may end. graceful: it was asked to, by a signal after which it must end
	// with exit code 0.
	mayEnd, graceful bool
}

// Run starts a command with exactly the given environment. Its output is appended
// to the file at logPath.
func Run(name, logPath string, env, command []string) (*Process, error) {
	p, err := child.Run(name, logPath, env, command)
	if err != nil {
		return nil, err
	}
	return &Process{Process: p}, nil
}

// runUntilEnd is Run for a command that is killed at the end of the test, unless it has ended.
func runUntilEnd(t testing.TB, name, logPath string, env, command []string) *Process {
	t.Helper()
	p, err := Run(name, logPath, env, command)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = p.Kill()
		if _, err := p.WaitExit(ExitTimeout); err != nil {
			t.Error(err)
		}
	})
	return p
}

// Kill ends the process at once (SIGKILL).
func (p *Process) Kill() error { return p.signal(syscall.SIGKILL, true, false) }

// Term ends the process to end (SIGTERM). It must then exit with code 0.
func (p *Process) Term() error { return p.signal(syscall.SIGTERM, true, true) }

// Interrupt ends the process to end as Ctrl-C does (SIGINT). It must then exit
// with code 0.
func (p *Process) Interrupt() error { return p.signal(os.Interrupt, true, true) }

// Stop freezes the process (SIGSTOP) and waits until none of its threads runs.
// The kernel goes on accepting connections and bytes for it.
func (p *Process) Stop() error {
	if err := p.signal(syscall.SIGSTOP, false, false); err != nil {
		return err
	}
	for deadline := time.Now().Add(stopTimeout); !p.frozen(); time.Sleep(time.Millisecond) {
		if p.Exited() || time.Now().After(deadline) {
			return fmt.Errorf("chaos: %s does not stop", p.Name)
		}
	}
	return nil
}

// stopTimeout bounds the wait for threads in the middle of a system call.
const stopTimeout = 5 * time.Second

// frozen reports whether all threads are stopped. Each gets the signal separately, and a late
// one could still answer a request.
func (p *Process) frozen() bool {
	stats, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", p.PID()))
	for _, path := range stats {
		b, err := os.ReadFile(path)
		if err != nil {
			continue // the thread is gone
		}
		// The state follows the name, which may itself hold parentheses.
		if state := string(b[bytes.LastIndexByte(b, ')')+1:]); !strings.HasPrefix(state, " T") {
			return false
		}
	}
	return len(stats) > 0
}

// Cont resumes a frozen process (SIGCONT).
func (p *Process) Cont() error { return p.signal(syscall.SIGCONT, false, false) }

// ExpectExit allows the process to end by itself, with any exit code.
func (p *Process) ExpectExit() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.mayEnd, p.graceful = true, false
}

func (p *Process) signal(s os.Signal, ends, graceful bool) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.Exited() {
		return fmt.Errorf("chaos: %v for %s, which has ended: %v", s, p.Name, p.State())
	}
	if ends {
		p.graceful = graceful && (p.graceful || !p.mayEnd)
		p.mayEnd = true
	}
	return p.Signal(s)
}

// Fault describes an unexpected end of the process, or returns "".
func (p *Process) Fault() string {
	if !p.Exited() {
		return ""
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case !p.mayEnd:
		return fmt.Sprintf("%s ended by itself: %v", p.Name, p.State())
	case p.graceful && p.State().ExitCode() != 0:
		return fmt.Sprintf("%s ended after a signal, want exit code 0: %v", p.Name, p.State())
	}
	return ""
}

// RSS returns the resident memory of the process in bytes.
func (p *Process) RSS() (int64, error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.PID()))
	if err != nil {
		return 0, err
	}
	_, rest, _ := strings.Cut(string(b), "\nVmRSS:")
	kib, _, _ := strings.Cut(rest, " kB")
	n, err := strconv.ParseInt(strings.TrimSpace(kib), 10, 64)
	return n << 10, err
}
