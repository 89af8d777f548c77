package lincheck_test

import (
	"flag"
	"testing"

	"go.uber.org/goleak"
	_ "pgregory.net/rapid" // defines the flag
)

func TestMain(m *testing.M) {
	// Histories are small, so many of them are cheap. The command line still wins.
	if err := flag.Set("rapid.checks", "3000"); err != nil {
		panic(err)
	}
	goleak.VerifyTestMain(m)
}
