//go:build unix

package demo

import (
	"os"
	"syscall"
)

// signalsWork: the signals below exist.
const signalsWork = true

// Signals other than SIGKILL.
var (
	signalStop os.Signal = syscall.SIGSTOP
	signalCont os.Signal = syscall.SIGCONT
)
