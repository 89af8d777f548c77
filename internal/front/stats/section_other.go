//go:build !linux

package stats

import "time"

// Without thread clocks a section has only wall.

func threadCPU() (time.Duration, bool) { return 0, false }

func threadSystem() (time.Duration, bool) { return 0, false }
