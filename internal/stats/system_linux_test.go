package stats_test

import (
	"os"
	"testing"
)

// kernelWork returns what has the kernel work.
func kernelWork(t *testing.T) func() {
	zero, err := os.Open("/dev/zero")
	if err != nil {
		t.Skip(err)
	}
	t.Cleanup(func() { _ = zero.Close() })
	b := make([]byte, 1<<18)
	return func() { _, _ = zero.Read(b) }
}
