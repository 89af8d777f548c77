//go:build !linux

package stops

// stopSelf does nothing: the tests that stop processes need Linux.
func stopSelf() {}
