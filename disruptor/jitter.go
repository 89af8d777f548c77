//go:build !race

package disruptor

// jitter does nothing, but in race builds.
func jitter() {}
