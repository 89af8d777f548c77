package stats_test

import (
	"os"
	"syscall"
	"testing"
	"unsafe"
)

// kernelWork returns what has the kernel work.
func kernelWork(t *testing.T) func() {
	zero, err := os.Open("/dev/zero")
	if err != nil {
		t.Skip(err)
	}
	t.Cleanup(func() { _ = zero.Close() })
	b := make([]byte, 1<<18)
	// Not by Read: under the race detector that works on every byte as well, as user.
	fd := zero.Fd()
	return func() {
		_, _, _ = syscall.RawSyscall(syscall.SYS_READ, fd, uintptr(unsafe.Pointer(unsafe.SliceData(b))), uintptr(len(b)))
	}
}
