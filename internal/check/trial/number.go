//go:build linux

package trial

import (
	"math/rand/v2"
	"os"
	"strconv"
	"testing"
	"time"
)

// RoundMax is how long one cluster of a storm lives, before a new one replaces it.
const RoundMax = 8 * time.Minute

// Short returns the smaller number in -short mode.
func Short(normal, short int) int {
	if testing.Short() {
		return short
	}
	return normal
}

// Number returns the setting of a storm in the environment, a number of 1 or more, or the default
// of a normal run, or the one with -short.
func Number(t *testing.T, name string, normal, short int) int {
	t.Helper()
	text := os.Getenv(name)
	if text == "" {
		return Short(normal, short)
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 {
		t.Fatalf("%s=%q: want a number of 1 or more", name, text)
	}
	return n
}

// Length returns how long a storm lasts: the number of minutes in the environment, or the default.
func Length(t *testing.T, name string, normal time.Duration) time.Duration {
	t.Helper()
	text := os.Getenv(name)
	if text == "" {
		return normal
	}
	minutes, err := strconv.ParseFloat(text, 64)
	if err != nil || minutes <= 0 {
		t.Fatalf("%s=%q: want a number of minutes", name, text)
	}
	return time.Duration(minutes * float64(time.Minute))
}

// Seed returns the seed in the environment, or a random one of 32 bits.
func Seed(t *testing.T, name string) uint64 {
	t.Helper()
	text := os.Getenv(name)
	if text == "" {
		return uint64(rand.Uint32())
	}
	seed, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		t.Fatalf("%s=%q: want a seed, an unsigned number", name, text)
	}
	return seed
}
