//go:build mutants

package pgstore_test

import (
	"testing"

	"github.com/isotone/isotone/txn/internal/mutant"
	"github.com/isotone/isotone/txn/internal/storecheck"
)

func TestMutants_AreNoticed(t *testing.T) {
	storecheck.Noticed(t, map[mutant.Mutant]func(*testing.T){
		mutant.PgShowsUnreplicated: TestRead_WaitsForTheReplicaAfterARestart,
		mutant.PgTrustsRefusals:    TestCommit_IsWholeAfterAFailover,
		mutant.PgFenceUnlocked:     TestSeal_WaitsForCommitsUnderWay,
	})
}
