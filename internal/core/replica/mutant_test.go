//go:build mutants

package replica_test

import (
	"maps"
	"testing"

	"github.com/isotone/isotone/internal/core/mutant"
)

// directed has for each bug that random runs would take too long to find a function that reports
// whether it does harm.
func directed() map[mutant.Mutant]func(*testing.T) bool {
	list := map[mutant.Mutant]func(*testing.T) bool{
		mutant.OpenOnOlderTerm:        repeatsOlderTerm,
		mutant.ReleaseLate:            grantsTwice,
		mutant.LeaseSurvivesTransfer:  answersBesideSuccessor,
		mutant.ForgetRemoved:          givesRemovedIDAway,
		mutant.VoteAfterRestart:       votesRightAfterStart,
		mutant.VoteAfterTermChange:    votesAfterTermChange,
		mutant.VoteForItselfInPromise: votesForItselfInPromise,
		mutant.CampaignUnsynced:       campaignsUnsynced,
		mutant.ExpelEarly:             expelsTooEarly,
		mutant.AnswerAnyTerm:          confirmsDeposed,
		mutant.CountNewVoters:         confirmsByNewVoters,
		mutant.CountEarlyGrants:       leadsTwice,
		mutant.EarlyUndurableLog:      losesCommittedEntry,
		mutant.LeaseWithoutSlack:      leaseOutlastsPromise,
		mutant.LeaseFromConfirm:       leasesUnpromised,
		mutant.CountUnpromised:        leasesUnpromised,
		mutant.PromiseWaivedOnRefusal: waivesPromise,
		mutant.WaitForDeaf:            waitsForDeaf,
		mutant.CampaignTogether:       waitsForDeaf,
		mutant.ResignedCampaigns:      leadsAgainAndAgain,
		mutant.LeaveInTurns:           leavesInTurns,
		mutant.LengthenWrongly:        appendsWhatDoesNotFollow,
		mutant.QueueResponses:         outgrowsResponses,
		mutant.UnboundedLog:           outgrowsItsBound,
		mutant.MergeSnapshotNotes:     func(t *testing.T) bool { return forgetsSnapshot(t, true) },
	}
	maps.Copy(list, changeHarms)
	maps.Copy(list, admissionHarms)
	maps.Copy(list, intervalHarms)
	maps.Copy(list, leadHarms)
	maps.Copy(list, beginningHarms)
	maps.Copy(list, idHarms)
	maps.Copy(list, addressHarms)
	maps.Copy(list, ownerHarms)
	maps.Copy(list, sessionHarms)
	return list
}

// TestMutants_BrokenPromisesAreNoticed switches on the bugs that random runs leave out.
func TestMutants_BrokenPromisesAreNoticed(t *testing.T) {
	defer mutant.Switch(mutant.None)
	broken := directed()
	for _, m := range mutant.All() {
		switch harms := broken[m]; {
		case m.IsDirected() != (harms != nil):
			t.Errorf("%v: directed: %v, has a test here: %v", m, m.IsDirected(), harms != nil)
		case harms != nil:
			t.Run(m.String(), func(t *testing.T) {
				if mutant.Switch(m); !harms(t) {
					t.Error("it was not noticed")
				}
			})
		}
	}
}

// ownerHarms has the deliberate bugs of owners and voters for which random runs take long. All but the last two have a former owner answer
// after a later one.
var ownerHarms = map[mutant.Mutant]func(*testing.T) bool{
	mutant.FenceByApplied:    answersBesideUnapplied,
	mutant.CompactedIsClean:  answersBesideSnapshot,
	mutant.NoConfigFence:     func(t *testing.T) bool { return answersByOldConfiguration(t, false) },
	mutant.OldConfigCounts:   func(t *testing.T) bool { return answersByOldConfiguration(t, true) },
	mutant.CountAnyone:       answersByLearner,
	mutant.OwnerReusesNumber: answersByLateAnswer,
	mutant.CountLateTold:     answersByLateAnswer,

	mutant.OwnerWaitWithoutRate:  answersUnderLeaseOfASlowClock,
	mutant.OwnerLeaseFromAnswer:  leaseFromAnswer,
	mutant.OwnerLeaseOverTouched: leaseOverTouched,
	mutant.LeaseOutlivesEnd:      answersAfterTheEnd,
	mutant.LeaseEndUnfenced:      extendsAfterTheEnd,
	mutant.LeaseOffEarly:         movesUnderLease,

	mutant.TimelineFillsQueue:  leavesNoRoom,
	mutant.TimelinesWithLeader: endsWithLeadership,
}

// sessionHarms has the deliberate bugs of sessions and locks for which random runs take long.
var sessionHarms = map[mutant.Mutant]func(*testing.T) bool{
	mutant.KeepWithoutRound:     keepsWithoutRound,
	mutant.LostWakeup:           wakesNobody,
	mutant.ReleaseUntold:        tellsNobody,
	mutant.AnswerWhileReleasing: answersWhileReleasing,
	mutant.LastInFirstOut:       wakesTheLast,
	mutant.ReleaseByName:        releasesAnother,
	mutant.ClaimBeforeFence:     claimsTooEarly,
	mutant.DigestMissesHolds:    agreesOnOtherHolds,
	mutant.RedisSessionBroken:   breaksTheReserved,
}
