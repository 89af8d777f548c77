//go:build race

package web

// raceEnabled: the race detector makes sync.Pool drop at random.
const raceEnabled = true
