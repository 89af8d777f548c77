//go:build !race

package disruptor

// jitter does nothing, except in builds with the race detector.
func jitter() {}
