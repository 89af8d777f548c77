// Package mutant is the switch for deliberate bugs of the protocol, by which the tests prove that
// they would notice them. In a normal build [On] is constant false and the compiler drops every bug.
// With the build tag "mutants" one bug can be switched on.
package mutant

// Mutant is one deliberate bug.
type Mutant int

// The bugs. Those of the oracle and of stores in general are in the simulator, those of bolt and pg in their
// packages, all others in package txn.
const (
	None                Mutant = iota
	SecondariesFirst           // secondaries are committed before the primary
	CleanUnasked               // a lock is cleaned without a look at its primary
	StartLate                  // the locks have a start timestamp that was requested after the reads
	CommitEarly                // the commit timestamp is requested before the locks are there
	OracleRepeats              // the oracle issues a timestamp twice
	OracleGoesBack             // a new leader of the oracle begins below what the last one issued
	RollBackUnmarked           // a transaction is rolled back without a mark
	ForwardUncommitted         // secondaries are rolled forward though the primary is not committed
	ReadIgnoresLocks           // a read does not wait for locks
	ScanIgnoresLocks           // a scan does not
	ConflictIgnored            // a lock is taken though a newer version was committed
	LockStolen                 // a lock is taken though another transaction has it
	PrimaryUnchecked           // the primary is committed though its lock is gone
	SecondaryUnchecked         // a secondary is committed again though its lock is gone
	UnknownIsFailed            // a commit without an answer counts as failed
	UnknownIsDone              // a commit without an answer counts as done
	RevisionsRepeat            // revisions count up, so a late write may meet its condition
	MarkIgnored                // a lock is taken after the transaction was rolled back
	ReadBelowSafe              // snapshots before the safe point are read
	CommitBelowSafe            // a transaction commits without a look at the safe points
	CollectUnresolved          // garbage is collected before locks are resolved
	CollectTooMuch             // the version that the safe point needs is collected
	VoidLockCounts             // a lock that was written too late is rolled forward
	VoidTooSoon                // a lock is taken for void by a point that is newer than the lock
	RecordForgotten            // the primary is committed without a record
	UndoUnknown                // the locks are removed though the outcome of the commit is unknown
	MarkUnlocks                // a mark removes the lock of another transaction
	CollectRecords             // all records are collected
	SeenTooNew                 // a row is locked by the revision that it had when it was read, though it had a newer version
	LostRecordAborts           // a commit whose record was collected counts as failed
	PartialScan                // a scan returns the first page as if it were all
	HoldsForever               // locks of the dead do not expire while the oracle's time stands still
	RenewalUnseen              // a renewal is no sign of life for whoever watches by a steady clock
	SightingsGrow              // what is remembered of other transactions has no bound
	BoltShowsUnsynced          // boltstore reads what is not synced yet
	BoltGoesOn                 // boltstore goes on after a commit has failed
	PgShowsUnreplicated        // pgstore reads what the replicas may not have
	PgTrustsRefusals           // pgstore takes a refused write, which does not wait, for a sign that replicas have everything
	PgFenceUnlocked            // pgstore compares a commit timestamp with its fence without a lock
	StoreShowsEarly            // a store shows writes before they are synced
	StoreAnswersEarly          // a store answers writes before they are synced
	StoreGoesOn                // a store goes on after a failed sync
	FailoverLags               // a failover loses what was synced
	FormerServes               // the server that a failover has replaced goes on to answer
	StampUntaken               // with a frontier, the commit timestamp is one of the oracle, of which the frontier knows nothing
	StampDoneEarly             // a stamp counts as decided before the primary is written
	DoubtIsDone                // a stamp counts as decided though the outcome of the commit is unknown
	FenceIgnored               // a store does not compare commit timestamps with its fence
	FrontierUnasked            // a reader at the frontier passes over locks without a look at the primary
	FrontierOnce               // it takes a record that was collected for none
	count
)

var names = [count]string{
	"none", "secondaries-first", "clean-unasked", "start-late", "commit-early", "oracle-repeats", "oracle-goes-back",
	"roll-back-unmarked", "forward-uncommitted", "read-ignores-locks", "scan-ignores-locks", "conflict-ignored",
	"lock-stolen", "primary-unchecked", "secondary-unchecked", "unknown-is-failed", "unknown-is-done",
	"revisions-repeat", "mark-ignored", "read-below-safe", "commit-below-safe", "collect-unresolved",
	"collect-too-much", "void-lock-counts", "void-too-soon", "record-forgotten", "undo-unknown", "mark-unlocks",
	"collect-records", "seen-too-new", "lost-record-aborts", "partial-scan",
	"holds-forever", "renewal-unseen", "sightings-grow",
	"bolt-shows-unsynced", "bolt-goes-on", "pg-shows-unreplicated", "pg-trusts-refusals", "pg-fence-unlocked",
	"store-shows-early", "store-answers-early", "store-goes-on", "failover-lags", "former-serves",
	"stamp-untaken", "stamp-done-early", "doubt-is-done", "fence-ignored", "frontier-unasked", "frontier-once",
}

// String returns the name of m.
func (m Mutant) String() string {
	if m < 0 || m >= count {
		return "invalid mutant"
	}
	return names[m]
}

// IsOfFrontier reports whether m is one of snapshots at a frontier.
func (m Mutant) IsOfFrontier() bool { return m >= StampUntaken && m <= FrontierOnce }

// All returns every bug, without None.
func All() []Mutant {
	all := make([]Mutant, 0, count-1)
	for m := None + 1; m < count; m++ {
		all = append(all, m)
	}
	return all
}
