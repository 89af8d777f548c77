//go:build mutants

package boltstore

import (
	"testing"

	"github.com/isotone/isotone/txn/internal/mutant"
	"github.com/isotone/isotone/txn/internal/storecheck"
)

func TestMutants_AreNoticed(t *testing.T) {
	storecheck.Noticed(t, map[mutant.Mutant]func(*testing.T){
		mutant.BoltShowsUnsynced: TestStore_AnswersWithWhatIsOnTheDisk,
		mutant.BoltGoesOn:        TestStore_RefusesEverythingAfterAFailedSync,
	})
}
