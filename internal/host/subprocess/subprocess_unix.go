//go:build unix

package subprocess

import (
	"os"
	"os/exec"
	"os/signal"
	"syscall"

	"golang.org/x/sys/unix"
)

// own gives a command a process group, which gets the terminal if this process has it. The function that it returns takes the terminal back.
func own(cmd *exec.Cmd) (restore func()) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	endWithParent(cmd.SysProcAttr)
	in := int(os.Stdin.Fd())
	group, err := unix.IoctlGetInt(in, unix.TIOCGPGRP)
	if err != nil || group != syscall.Getpgrp() {
		return func() {}
	}
	cmd.SysProcAttr.Foreground, cmd.SysProcAttr.Ctty = true, in
	return func() {
		signal.Ignore(syscall.SIGTTOU) // which who is not in the foreground gets for this
		_ = unix.IoctlSetPointerInt(in, unix.TIOCSPGRP, group)
	}
}

func signalGroup(p *os.Process, s os.Signal) error {
	number, ok := s.(syscall.Signal)
	if !ok {
		return p.Signal(s)
	}
	return syscall.Kill(-p.Pid, number)
}

func exitCode(s *os.ProcessState) int {
	if status, ok := s.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		return 128 + int(status.Signal())
	}
	return s.ExitCode()
}
