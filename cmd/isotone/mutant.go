//go:build mutants

package main

import (
	"fmt"
	"os"

	"github.com/isotone/isotone/internal/core/mutant"
)

// init has this process misbehave as ISOTONE_MUTANT says, for tests of "isotone verify". Only builds with the tag mutants
// can; see package mutant.
func init() {
	name := os.Getenv("ISOTONE_MUTANT")
	if name == "" {
		return
	}
	for _, m := range mutant.All() {
		if m.String() == name {
			mutant.Switch(m)
			return
		}
	}
	fmt.Fprintf(os.Stderr, "ISOTONE_MUTANT=%s: there is no such mutant\n", name)
	os.Exit(exitUsage)
}
