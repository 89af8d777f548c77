//go:build unix

package live

import "syscall"

const openNonblock = syscall.O_NONBLOCK
