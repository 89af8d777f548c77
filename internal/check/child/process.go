package child

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"time"
)

// Process is one run of a command. Any goroutine may call its methods.
type Process struct {
	// Name is used in messages.
	Name string
	// LogPath is the file that gets its output.
	LogPath string

	cmd      *exec.Cmd
	logStart int64         // where the output of this run begins
	ended    chan struct{} // closed when the process has ended
}

// Run starts a command, as [Start] does, with exactly the given environment. Its output is appended to the
// file at logPath.
func Run(name, logPath string, env, command []string) (*Process, error) {
	log, err := os.OpenFile(logPath, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	defer log.Close()
	info, err := log.Stat()
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	p := &Process{Name: name, LogPath: logPath, logStart: info.Size(), ended: make(chan struct{})}
	p.cmd = exec.Command(command[0], command[1:]...)
	p.cmd.Env, p.cmd.Stdout, p.cmd.Stderr = env, log, log
	if err := Start(p.cmd); err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	go func() {
		defer close(p.ended)
		_ = p.cmd.Wait() // the state says more
	}()
	return p, nil
}

// PID returns the process ID.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// KillGroup ends what is left in the process group of the process.
func (p *Process) KillGroup() error { return KillGroup(p.PID()) }

// Signal sends a signal. One that comes too late is lost.
func (p *Process) Signal(s os.Signal) error {
	if err := p.cmd.Process.Signal(s); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("%v for %s: %w", s, p.Name, err)
	}
	return nil
}

// Ended is closed when the process has ended.
func (p *Process) Ended() <-chan struct{} { return p.ended }

// Exited reports whether the process has ended.
func (p *Process) Exited() bool {
	select {
	case <-p.ended:
		return true
	default:
		return false
	}
}

// State says how the process has ended.
func (p *Process) State() *os.ProcessState {
	<-p.ended
	return p.cmd.ProcessState
}

// WaitExit waits for the end of the process and returns its exit code, -1 if a
// signal ended it.
func (p *Process) WaitExit(timeout time.Duration) (int, error) {
	select {
	case <-p.ended:
		return p.cmd.ProcessState.ExitCode(), nil
	case <-time.After(timeout):
		return 0, fmt.Errorf("%s still runs after %v", p.Name, timeout)
	}
}

// Log returns what this run has printed so far.
func (p *Process) Log() string {
	b, err := os.ReadFile(p.LogPath)
	if err != nil {
		return fmt.Sprintf("(no log: %v)", err)
	}
	return string(b[min(p.logStart, int64(len(b))):])
}
