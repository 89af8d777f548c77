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

// setting returns what the environment sets, or else what is normal. parse reports whether the text is what is wanted.
func setting[T any](t *testing.T, name string, normal T, want string, parse func(text string) (T, bool)) T {
	t.Helper()
	text := os.Getenv(name)
	if text == "" {
		return normal
	}
	v, ok := parse(text)
	if !ok {
		t.Fatalf("%s=%q: want %s", name, text, want)
	}
	return v
}

// Number returns the setting of a storm in the environment, a number of 1 or more, or the default
// of a normal run, or the one with -short.
func Number(t *testing.T, name string, normal, short int) int {
	t.Helper()
	return setting(t, name, Short(normal, short), "a number of 1 or more", func(text string) (int, bool) {
		n, err := strconv.Atoi(text)
		return n, err == nil && n >= 1
	})
}

// Length returns how long a storm lasts: the number of minutes in the environment, or the default.
func Length(t *testing.T, name string, normal time.Duration) time.Duration {
	t.Helper()
	return setting(t, name, normal, "a number of minutes", func(text string) (time.Duration, bool) {
		minutes, err := strconv.ParseFloat(text, 64)
		return time.Duration(minutes * float64(time.Minute)), err == nil && minutes > 0
	})
}

// Seed returns the seed in the environment, or a random one of 32 bits.
func Seed(t *testing.T, name string) uint64 {
	t.Helper()
	return setting(t, name, uint64(rand.Uint32()), "a seed, an unsigned number", func(text string) (uint64, bool) {
		seed, err := strconv.ParseUint(text, 10, 64)
		return seed, err == nil
	})
}
