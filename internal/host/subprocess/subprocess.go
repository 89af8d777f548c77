// Package subprocess runs a command whose whole process group can be ended, and ends with this process.
package subprocess

import (
	"errors"
	"os"
	"os/exec"
	"runtime"
)

// Process is a command that runs. It is safe for concurrent use.
type Process struct {
	cmd  *exec.Cmd
	done chan struct{}
	code int // set before done is closed
}

// Start runs a command with this process' standard input, output and error. On Unix it has a process group of its own, which gets the terminal if this process has
// it; on Linux it is killed if this process dies. The environment is that of this process and env.
func Start(args, env []string) (*Process, error) {
	p := &Process{done: make(chan struct{}), cmd: exec.Command(args[0], args[1:]...)}
	p.cmd.Stdin, p.cmd.Stdout, p.cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	p.cmd.Env = append(os.Environ(), env...)
	started := make(chan error, 1)
	go func() {
		// Linux sends the signal of a parent's death when the thread that has started the command ends.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		restore := own(p.cmd)
		defer restore()
		err := p.cmd.Start()
		started <- err
		if err == nil {
			p.code = codeOf(p.cmd, p.cmd.Wait())
			close(p.done)
		}
	}()
	if err := <-started; err != nil {
		return nil, err
	}
	return p, nil
}

// Done is closed when the command has ended.
func (p *Process) Done() <-chan struct{} { return p.done }

// Code returns the exit code of a command that has ended. As in shells it is 128 and the number of the signal that has killed it.
func (p *Process) Code() int { return p.code }

// Signal sends a signal to the process group of the command.
func (p *Process) Signal(s os.Signal) error {
	select {
	case <-p.done:
		return os.ErrProcessDone
	default:
		return signalGroup(p.cmd.Process, s)
	}
}

// Kill kills the process group of the command.
func (p *Process) Kill() error { return p.Signal(os.Kill) }

// codeOf returns the exit code of a command for which Wait has returned err.
func codeOf(cmd *exec.Cmd, err error) int {
	var exit *exec.ExitError
	switch {
	case err == nil:
		return 0
	case !errors.As(err, &exit):
		return 1
	}
	return exitCode(cmd.ProcessState)
}
