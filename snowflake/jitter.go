//go:build !race

package snowflake

// jitter does nothing, except in builds with the race detector.
func jitter() {}
