//go:build !unix

package subprocess

import (
	"os"
	"os/exec"
)

func own(*exec.Cmd) (restore func()) { return func() {} }

// signalGroup kills the command whatever the signal is: this system has no others, and no process groups.
func signalGroup(p *os.Process, _ os.Signal) error { return p.Kill() }

func exitCode(s *os.ProcessState) int { return s.ExitCode() }
