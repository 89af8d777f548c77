//go:build linux

package trial

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"testing"

	"github.com/isotone/isotone/internal/check/chaos"
)

// Binary is the isotone command under test. [Main] builds it once for all tests of a package.
var Binary string

// BinaryVariable names the command under test in the environment of a test that starts itself
// again; without it, [Main] builds one.
const BinaryVariable = "ISOTONE_TEST_BINARY"

// Main is the TestMain of a package of tests with real processes, but for os.Exit: it builds the
// binary, runs the tests, calls the functions in after, and returns the exit code.
func Main(m *testing.M, after ...func()) int {
	chaos.BeHostile()
	flag.Parse()
	if isParallelByDefault() {
		_ = flag.Set("test.parallel", strconv.Itoa(parallel))
	}
	if Binary = os.Getenv(BinaryVariable); Binary != "" {
		return m.Run()
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
	return m.Run()
}

// parallel is how many tests run at a time, however many processors there are: most of the time
// they wait for elections, leases and restarts.
const parallel = 4

// isParallelByDefault reports whether the command line has no -parallel. Storms measure deadlines, so
// their targets in the Makefile do.
func isParallelByDefault() bool {
	chosen := false
	flag.Visit(func(f *flag.Flag) { chosen = chosen || f.Name == "test.parallel" })
	return !chosen
}

// Previous builds the previous release once, beside [Binary], and returns the path of its
// command; see [chaos.BuildPrevious].
var Previous = sync.OnceValues(func() (string, error) { return chaos.BuildPrevious(filepath.Dir(Binary)) })

// Options are those of most tests: three nodes, all settings default.
func Options() chaos.Options { return chaos.Options{Binary: Binary} }
