//go:build !linux

package node

// stopSelf does nothing: the tests that stop processes need Linux.
func stopSelf() {}
