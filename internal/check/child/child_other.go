//go:build !unix

package child

import (
	"os/exec"
	"syscall"
)

func attributes() *syscall.SysProcAttr { return nil }

func start(cmd *exec.Cmd) error { return cmd.Start() }
