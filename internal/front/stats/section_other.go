//go:build !linux

package stats

import "time"

// Here a section has no other figure than wall.

func threadCPU() (time.Duration, bool) { return 0, false }

func threadSystem() (time.Duration, bool) { return 0, false }
