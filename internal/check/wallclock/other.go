//go:build !linux || !amd64

package wallclock

import (
	"errors"
	"runtime"
	"time"
)

// Denied returns why clocks cannot be set here.
func Denied() string { return "not on " + runtime.GOOS + "/" + runtime.GOARCH }

// Set sets no clock.
func Set(int, time.Duration) error { return errors.New(Denied()) }
