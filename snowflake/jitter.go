//go:build !race

package snowflake

// jitter does nothing, but in race builds.
func jitter() {}
