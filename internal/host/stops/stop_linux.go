package stops

import (
	"os"

	"golang.org/x/sys/unix"
)

// stopSelf stops this process until it gets SIGCONT. The signal goes to the calling thread, which
// handles it before it returns from the call: sent to the process, another thread might take it
// while this one goes on.
func stopSelf() { _ = unix.Tgkill(os.Getpid(), unix.Gettid(), unix.SIGSTOP) }
