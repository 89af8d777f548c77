//go:build unix && !linux

package subprocess

import "syscall"

// endWithParent does nothing: this system has no such means.
func endWithParent(*syscall.SysProcAttr) {}
