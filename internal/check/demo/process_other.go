//go:build !unix

package demo

import (
	"os"
	"os/exec"
	"syscall"
)

// signalsWork: there are signals other than SIGKILL.
const signalsWork = false

// These are never sent: see [Options.Validate].
var signalStop, signalCont, signalTerm os.Signal = os.Kill, os.Kill, os.Kill

func attributes() *syscall.SysProcAttr { return nil }

func spawn(cmd *exec.Cmd) error { return cmd.Start() }
