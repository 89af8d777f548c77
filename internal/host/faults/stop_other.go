//go:build !linux

package faults

// stopSelf does nothing: the tests that stop processes need Linux.
func stopSelf() {}
