package subprocess

import "syscall"

// endWithParent has the command killed if this process dies.
func endWithParent(a *syscall.SysProcAttr) { a.Pdeathsig = syscall.SIGKILL }
