// Package parallel runs more parallel tests of a package at once than there are processors, for tests that
// wait most of the time: for elections, leases, deadlines and restarts.
package parallel

import (
	"flag"
	"strconv"
	"testing"
)

// Tests is a *testing.M that runs N parallel tests at once, unless the command line has -parallel.
type Tests struct {
	*testing.M
	N int
}

// Run runs the tests and returns the exit code.
func (t Tests) Run() int {
	flag.Parse()
	chosen := false
	flag.Visit(func(f *flag.Flag) { chosen = chosen || f.Name == "test.parallel" })
	if !chosen {
		_ = flag.Set("test.parallel", strconv.Itoa(t.N))
	}
	return t.M.Run()
}
