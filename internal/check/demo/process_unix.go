//go:build unix && !linux

package demo

import (
	"os/exec"
	"syscall"
)

// attributes gives the process a group of its own, which keeps Ctrl-C at the terminal from it. If
// this process is killed, its nodes go on: only Linux ends them.
func attributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }

func spawn(cmd *exec.Cmd) error { return cmd.Start() }
