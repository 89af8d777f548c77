//go:build mutants

package boltstore

import (
	"os"
	"os/exec"
	"testing"

	"github.com/isotone/isotone/txn/internal/mutant"
)

// TestMutants_AreNoticed runs the tests of the contract in a process with each bug of this package.
func TestMutants_AreNoticed(t *testing.T) {
	bugs := map[string]mutant.Mutant{
		mutant.BoltShowsUnsynced.String(): mutant.BoltShowsUnsynced, mutant.BoltGoesOn.String(): mutant.BoltGoesOn,
	}
	if name := os.Getenv("BOLTSTORE_MUTANT"); name != "" {
		mutant.Switch(bugs[name])
		TestStore_AnswersWithWhatIsOnTheDisk(t)
		return
	}
	for name := range bugs {
		cmd := exec.Command(os.Args[0], "-test.run=^TestMutants_AreNoticed$")
		cmd.Env = append(os.Environ(), "BOLTSTORE_MUTANT="+name)
		out, err := cmd.CombinedOutput()
		if _, failed := err.(*exec.ExitError); !failed {
			t.Errorf("%s was not noticed: %v\n%s", name, err, out)
		} else {
			t.Logf("%s: %s", name, out)
		}
	}
}
