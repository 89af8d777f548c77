// Package child starts processes that do not outlive this one, and keeps their output, for tests and demonstrations.
package child

import "os/exec"

// Start starts cmd in a process group of its own, so that Ctrl-C at the terminal does not reach it. On Linux
// the kernel kills it (SIGKILL) when this process ends, however that ends; elsewhere it goes on then. It
// replaces cmd.SysProcAttr. Any goroutine may call it.
func Start(cmd *exec.Cmd) error {
	cmd.SysProcAttr = attributes()
	return start(cmd)
}
