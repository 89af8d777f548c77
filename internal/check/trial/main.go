//go:build linux

package trial

import (
	"fmt"
	"os"
	"testing"

	"github.com/isotone/isotone/internal/check/chaos"
	"github.com/isotone/isotone/internal/check/parallel"
)

// Binary is the isotone command under test. [Main] builds it once for all tests of a package.
var Binary string

// BinaryVariable names the command under test in the environment of a test that starts itself
// again; without it, [Main] builds one.
const BinaryVariable = "ISOTONE_TEST_BINARY"

// Main is the TestMain of a package of tests with real processes, but for os.Exit: it builds the
// binary, runs the tests, four at once, calls the functions in after, and returns the exit code.
func Main(m *testing.M, after ...func()) int {
	chaos.BeHostile()
	tests := parallel.Tests{M: m, N: 4}
	if Binary = os.Getenv(BinaryVariable); Binary != "" {
		return tests.Run()
	}
	dir, err := os.MkdirTemp("", "isotone-trial-")
	if err == nil {
		defer os.RemoveAll(dir)
		Binary, err = chaos.Build(dir)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	for _, f := range after {
		defer f()
	}
	return tests.Run()
}

// Options are those of most tests: three nodes, all settings default.
func Options() chaos.Options { return chaos.Options{Binary: Binary} }
