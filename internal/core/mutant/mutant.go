// Package mutant is the switch for deliberate protocol bugs, by which the tests prove that
// they would notice them. In a normal build [On] is constant false and the compiler drops
// every bug. With the build tag "mutants" one bug can be switched on.
//
// internal/core/oracle, replica, sim and others ask On at the place of each bug, or in a file
// mutant.go if a bug takes more than a condition. Only tests switch.
package mutant

// Mutant is one deliberate bug.
type Mutant int

// The bugs, each with the invariant that it breaks, or "liveness".
const (
	None                   Mutant = iota
	KeepAllocator                 // I2: a re-elected leader goes on where it stopped
	KeepEpochResetIndex           // I2: it keeps the epoch and begins its index again
	ServeUnreserved               // I1, I2: it issues before its own reservation is applied
	OpenOnOlderTerm               // I2: a reservation of an earlier term opens the allocator
	FloorFromClock                // I2: the floor is the clock, not the ceiling before
	TimeFollowsClock              // I3: time goes back with the clock
	IndexRestarts                 // I3: each epoch begins at index 0, though time held
	RangeOverlaps                 // I3: a range uses up one index only
	IgnoreCeiling                 // I1: time follows the clock beyond the ceiling
	CeilingSinks                  // I1: a reservation may lower the ceiling
	RestoreOldCeiling             // I1: a snapshot is restored without its ceiling
	NoRound                       // I4: requests are answered at once
	JoinRoundInFlight             // I4: a request joins a round that began before it
	ReuseRoundNumber              // I4: all rounds have one number
	CountLearner                  // I4: a learner's answer counts as a voter's
	AnswerAnyTerm                 // I4: a member in a later term answers a leader's round
	ConfirmByTooFew               // I4: a round is confirmed by one voter less than a quorum
	CountNewVoters                // I4: between two configurations the old voters are not asked for
	AcknowledgeUnsynced           // I8: entries are acknowledged before they are durable
	VoteUnsynced                  // I8: votes are sent before they are durable
	CampaignUnsynced              // liveness: a leader that transfers its leadership is deposed before its successor's term is durable
	CountEarlyGrants              // I8: votes of others count before the candidate's term is durable
	EarlyUndurableLog             // I8: votes are asked for with a log that is not durable
	IgnoreFailedSync              // I8: a failed write counts as durable
	AdmitWiped                    // I6: another incarnation is let in
	AdmitStale                    // I6: an older copy is let in
	RefuseSlowHello               // I6: a disk in order is refused because its hello was slow
	LeaseFromAnswer               // I5: the lease is measured from the answer
	LeaseWithoutSlack             // I5: it lasts as long as the election timeout
	LeaseOnOldClock               // I5: it is checked with a clock read before the request came
	LeaseSurvivesTransfer         // I5: it is kept while leadership is transferred
	LeaseUnconfirmed              // I5: it is extended by a round that nobody has answered
	LeaseFromConfirm              // I5: it is extended by any confirmed round, whatever the voters promised
	CountUnpromised               // I5: an answer without a promise counts as one with it
	PromiseWaivedOnRefusal        // I5: a refused connection to the leader ends the promise to it
	LengthenWrongly               // I8: a leader's append goes on with entries that do not follow
	WaitForDeaf                   // liveness: voters leave a node that does not hear them time whenever it asks for pre-votes
	CampaignTogether              // liveness: all voters with a longer log than a candidate's campaign at the same time
	ResignedCampaigns             // liveness: a leader that has lost its quorum campaigns before the others, as its log is longer
	VoteAfterRestart              // I5: a node votes right after its start
	VoteAfterTermChange           // I5: a node ignores its promise
	VoteForItselfInPromise        // I5: a promise does not keep a node from voting for itself
	GrantFromRequest              // I9: a grant begins when its request says, though the last one ended later
	InheritLease                  // I9: a process goes on with the lease of its node's former process
	ExtendUnasked                 // I9: a node believes that its lease ends later than was granted
	ReleaseUsed                   // I9: giving back frees milliseconds that were used
	ReleaseLate                   // I9: a release that arrives late frees a newer grant
	RelistReleased                // I9: a lease that is being given back is handed out again
	ForgetWorkers                 // I9: a snapshot is restored without its worker leases
	GrantForeignSpace             // I9: a lease is granted for ids of another layout
	QueueResponses                // I7: every message that waits for the disk is kept
	UnboundedLog                  // I7: a log grows however much of it the disk lacks
	MergeSnapshotNotes            // I8: a write that is merged forgets what Raft notes of a snapshot
	ChangeUnchecked               // I7: any change of membership is proposed
	ReleaseInNextStep             // I9: a generator is ended in one step and its lease given back in the next
	IgnoreClocks                  // I11: the ceiling follows the leader's clock alone
	VouchByOne                    // I11: it follows the clock that is furthest ahead
	FollowJump                    // I11: a sole voter follows any jump of its clock
	BelieveStaleClocks            // I11: a clock counts however long ago it was told
	RaiseUnasked                  // I12: the feature level is raised before all members know it
	ApplyByNode                   // I12: what a command does depends on the node that applies it
	FormByQuorum                  // I10: a cluster is formed by a majority of its initial members
	FormUnprepared                // I10: it is formed before everyone has its first snapshot on disk
	FormUnregistered              // I4, I6: the first snapshot does not say whose directories the members have
	FloorIgnored                  // I13: a leader goes on below the floor that an operator has raised
	ForgetRemoved                 // I6: a removed member is let in again
	ExpelEarly                    // liveness: a removed member is told to stop while its vote may be needed
	CopyWins                      // I6: a copy of a data directory that is started takes the place of the process that runs
	RestoreBelow                  // I13: a restored cluster starts without its floor
	CarryNothing                  // I13: a restored cluster may begin below what the lost one issued while its time was ahead of the clock
	FloorWithoutMargin            // I13: it begins right above the timestamp that an operator gives
	RestoreOwnFloor               // I10, I13: each founder takes its own floor for the largest
	FreeRestored                  // I9: a restored cluster grants workers that clients of the lost one may hold
	ClientFloorIgnored            // I13: a leader answers at or below the floor that a request carries
	ClientFloorUnbounded          // I11: a client raises the floor however far it is ahead of the clock
	ClientFloorByAnyone           // I17: a client without the right to it moves time ahead of the clock
	WholeLease                    // I9: a node whose clock jumps ahead uses its lease there
	RevokeAtOnce                  // I9: a revoked lease ends at once, though its holder goes on to its end
	RenewRevoked                  // I9: a revoked lease is renewed
	RenewRarely                   // liveness: a lease is renewed once in an election timeout, however short it is
	LeaseBeforeEpoch              // liveness: a worker is leased before the epoch of its ids, which fixes a layout that makes none
	SameTime64                    // I3: a 64-bit timestamp gets the time of others that are larger
	RangeOverlaps64               // I3: a range of 64-bit timestamps uses up the first one only
	IgnoreCeiling64               // I1: 64-bit timestamps go beyond the ceiling
	ReserveFromClock              // liveness: nothing is reserved for 64-bit timestamps while time is ahead of the clock
	LeadUnbounded                 // I11: what they use up is reserved, however far that is ahead of the clock
	HoldAll                       // liveness: requests that wait for their floor fill the queue
	FarOffAtOnce                  // liveness: a leader gives a cluster clock up as soon as it is far off

	// The cluster clock (I14).

	ClockFromWall        // I14: a cluster clock starts at the wall clock, though that is below the floor
	ClockFromOwnEstimate // I14: it starts where the new leader believes that the last one is
	JumpInTerm           // I14: it follows a jump of the wall clock within its term
	CoarseEpoch          // I14: the oracle's time follows it only now and then
	OracleByWall         // I14: the oracle's time follows the wall clock instead
	LimitFromAnswer      // I14: a limit counts from the confirmation of a round, not from its start
	LimitUnconfirmed     // I14: a limit rests on a round that nobody has answered
	LimitOverCeiling     // I14: a limit may be above the ceiling
	TellUnsaid           // I14: readings are told though the log does not say so
	NoWait               // I14: a new leader does not wait for limits to pass
	WaitWithoutRate      // I14: it waits as if all clocks had the same rate
	ReelectedSkipsWait   // I14: it does not wait if it led before
	OracleDoesNotWait    // I14: it issues before limits have passed
	ReportOwnOnly        // I14: it waits less by what it knows itself, not by what its voters know
	ReportNotAsLeader    // I14: a voter that led does not count that as an answer to a leader
	ReportForgets        // I14: a voter that was started again says that it has answered nobody for long
	ReleaseEarly         // I14: a leader says that no limit runs though one does
	ReleaseAndTell       // I14: it goes on telling readings after that
	TellAfterGivingUp    // I14: it tells readings after it gave up the transfer, though what it proposed about that may still be applied
	FromReceive          // I14: the latest bound counts from the answer
	EarlyFromSend        // I14: the earliest bound counts from the request
	HalfRTT              // I14: both bounds are those in the middle of the round trip
	NoGrowth             // I14: bounds do not widen with time
	NoUncertainty        // I14: the earliest bound is taken for both
	AnswerOfAnother      // I14: an answer is taken for that to another request
	MergeTerms           // I14: what is known of the clocks of two terms is put together
	LimitOfNewer         // I14: bounds of one term are used with the limit of a later one
	IgnoreLimit          // I14: bounds are used beyond their limit
	LeaderIgnoresLimit   // I14: a leader uses its own clock beyond its limit
	LimitByEarliest      // I14: the earliest bound is held against the limit
	StaleRelay           // I14: a node tells on what it was told, not what it knows now
	ClockBeforeCall      // I14: a read uses bounds of before it began
	ClockStopsInSuspend  // I14: a steady clock stands still while the machine is suspended
	ClockBeforeEstimate  // I14: the clock is read before the estimate is loaded
	NoCommitWait         // I14: an operation is done before its timestamp is past
	WaitOnLatest         // I14: it is done when its timestamp may be past
	StampEarliest        // I14: a timestamp is the earliest that the time can be
	GeneratorForgets     // I14: a generator makes a timestamp twice
	AheadOfClock64       // I14: 64-bit timestamps run ahead of the cluster clock
	BehindClock64        // I14: they may be from before their request came

	// What is sent and stored.

	DropPromise       // I5: a promise is left out of the heartbeat that asks for it
	LastPartIsWhole   // liveness: the last part of a message is taken for all of it
	SaveUnsynced      // I8: a record counts as durable before it was synced
	RetryFailedSync   // I8: a sync that has failed is tried again
	NamesUnsynced     // I8: a new journal is used before its name is durable
	SpareBeforeNames  // I8: a spare file is overwritten that may be the data file after a power cut
	GoOnInTail        // I8: a process goes on behind a record that is not complete
	AcceptBadChecksum // I6: a sector is believed whatever its checksum says
	DamageIsTail      // I6: a damaged record counts as one that was never complete
	// The addresses of members.

	DialRecordedOnly // liveness: a member is dialed only at the address on record
	KeepAddress      // liveness: the address of a member stays on record though its settings have changed
	RecordLocal      // liveness: an address that only its own machine can dial goes on record

	// What clients do. Tests in internal/core/search notice all of them, the simulator those that do lasting harm.

	IgnoreMoved     // liveness: a client does not follow a redirection
	NeverSuspect    // liveness: it goes on with a leader that has failed or refuses
	ForgetMembers   // liveness: it knows the nodes only that it was given
	BelieveClaims   // liveness: the members that a node names which only says that it leads replace those that are known
	NeverRefresh    // liveness: it asks for the members only when it searches
	ConfirmByOthers // liveness: a node that has not noticed that the leader is down ends the search
	ReturnToFailed  // liveness: the word of such a node brings the client back to a leader that has just failed
	MoveUnpaced     // liveness: nodes that name each other are asked without a pause
	CarryNoFloor    // I13: the first request on a connection carries no floor
	KeepNoFloor     // I4: a client takes an answer that is below what it has received

	// The table of timelines. Tests in internal/core/timeline notice all of them.

	GrantKeepsFloor         // T2: a tenure begins where the one before did
	CeilingForgottenOnGrant // T2: it begins below what was issued of a timeline with a ceiling of its own
	RecreateAtGroupFloor    // T2: a timeline that is created again begins where its group does
	TombstoneForgotten      // T2: it begins below the ceiling that the deleted one had of its own
	MoveKeepsFloor          // T2: a timeline that is moved goes on where its tenure began
	MoveUnderLease          // T8: a timeline is moved, deleted or sealed though its owner may answer by a lease
	LeaseOffEndsAny         // T8: the end of a lease that comes late ends another one
	LeaseForgottenOnRestore // T8: the first owner of a restored cluster does not wait for leases
	RestoreTimelinesBelow   // I13: the timelines of a restored cluster begin without its floor

	// Each of the following lacks one rule that refuses something. All of them are directed.

	OwnWithoutSession       // T1: a process goes on with the timelines of its node's former process
	OwnUngranted            // T1: a leader issues timestamps of a timeline before it is granted its group
	BaseOnce                // T2: an owner compares with the base of a timeline only when it first issues
	IssueSealed             // T11: a sealed timeline goes on
	FenceByApplied          // T4: a voter tells an owner what it has applied
	CompactedIsClean        // T4: what a snapshot has replaced does not count
	NoConfigFence           // T4: changes of membership do not count
	TouchedIgnored          // T5: an owner does not look at what it has been told
	OwnerCountsTooFew       // T5: a round is confirmed by one voter less than a quorum
	CountAnyone             // T5: the answers of learners and former members count
	OldConfigCounts         // T5: a round outlives its configuration
	OwnerReusesNumber       // T3: all rounds of an owner have one number
	CountLateTold           // T5: an answer to an earlier round counts
	LeaderSelfUnchecked     // T7: a leader does not look into its own log
	NoOwnerWait             // T8: who is granted a group does not wait for the lease of the former owner
	OwnerWaitWithoutRate    // T8: it waits as if all clocks had the same rate
	OwnerLeaseFromAnswer    // T8: the lease of an owner counts from the confirmation of a round, not from its start
	OwnerLeaseOverTouched   // T8: a round gives a lease though the owner has not applied what it is told of
	OwnerLeaseUnlogged      // T8: an owner answers by a lease though the log does not allow it
	LeaseOutlivesEnd        // T8: an owner goes on by a lease that is ending
	LeaseEndUnfenced        // T8: voters do not tell that a lease is ending
	LeaseOffEarly           // T8: a leader says that a lease has ended before it has run out
	FloorUnderLease         // T8: a raised floor is acknowledged though a former owner may answer by a lease
	ReadBelowBase           // T2: an owner answers reads below what an earlier one has
	WriteBelowRead          // T2: a write is not after what was read or applied
	WriteTwice              // T2: two writes have one time
	ApplyForgotten          // T2: reads are below a write that was applied
	SharedFarAhead          // I11: the ceiling of timelines is further ahead of the clock than two reservations
	TimelineFillsQueue      // I7: the requests of one timeline leave no room for others
	TimelinesWithLeader     // liveness: the requests of timelines that a leader owns end with its leadership
	DeathWithoutHole        // frontier: what an ended session may still write is forgotten
	TermWithoutHole         // frontier: what writers of earlier terms may still write is forgotten
	HoleNarrow              // frontier: a hole that grows begins at the later of the two beginnings
	HoleAtLow               // frontier: of what an ended session may still write, the lowest stamp is noted only
	HoleClearedByBind       // frontier: a session that binds closes the hole
	BindAsTold              // frontier: a session that binds late may write below the frontier
	TakeUnregistered        // frontier: stamps are issued and not registered
	TakeKeepsLow            // frontier: a session that takes stamps has decided all earlier ones
	LowMaySink              // frontier: a late report lowers what a session has decided
	DoubtForgotten          // frontier: a write without an answer counts as decided
	SealOverLive            // frontier: a seal fences what a live session may write
	SealClosesAll           // frontier: a seal closes the whole hole
	SealAsAsked             // frontier: a seal counts as the latest that was asked for
	SealWithoutGrace        // frontier: a new leader seals what its writers had no time to name
	FrontierAtNext          // frontier: the frontier is the next stamp to be issued
	FrontierAtLow           // frontier: the frontier is the lowest stamp that may be written
	TimersNotRestarted      // sessions: a new leader ends sessions that it had no time to hear
	NoRateMargin            // sessions: a session ends as soon as its TTL has passed by the leader's clock
	LingerWithoutRate       // sessions: a session without a connection ends as soon as its linger has passed by the leader's clock
	ExpireAfterOwnPause     // sessions: a leader that did not run counts that time
	EndAtEOF                // sessions: a session ends with its connection
	StaleConnection         // sessions: an earlier connection of a session takes it back
	ExpireNotCondemned      // sessions: a session that is being ended goes on
	HeardBeforeBound        // R3: a client heeds what a leader tells before that has bound it
	TTLMayGrow              // sessions: a session that binds may have another TTL than its holds say
	GrantUnchecked          // R6: a lock is granted though somebody holds it
	ReleaseByName           // R7: a release with another token frees a lock
	TokenBeforeCommit       // R6: the holder of a lock is told before that is in the log
	AnswerWhileReleasing    // R7: a session is told that it holds what it is releasing
	KeepWithoutRound        // R3: a session is told that it is alive by a leader that may be deposed
	BindBeforeOpen          // R2: a leader binds sessions before it has applied all entries of earlier terms
	WaiterOutlivesSession   // R6: a lock is granted to a session that has ended
	BreakAtOnce             // R4: the locks of a session that an operator has broken are free before its client stops believing
	LostWakeup              // liveness: nobody gets a lock that is released
	SnapshotWithoutHolds    // R6: a snapshot is restored without the holds
	DigestMissesHolds       // I12: the digest of the state lacks the holds
	ClaimBeforeFence        // R6: locks of a restored cluster are claimed while holders of the former one believe in theirs
	LastInFirstOut          // R6: a lock goes to whoever has waited for the shortest time
	ReleaseUntold           // liveness: nobody is told that a lock is released
	RedisUnconfirmed        // R3: a leader that may be deposed refreshes locks of Redis libraries
	RedisFreeAtEnd          // R4: a lock of a Redis library is free as soon as its time has passed by the leader's clock
	RedisExtendByLeader     // R4: what is left of its time when it is extended is by the leader's clock
	RedisTimeUnrecorded     // R4: a longer time of such a lock is not in the log
	RedisSessionBroken      // liveness: an operator who breaks a lock of a Redis library ends the session of all of them
	UntoldKept              // R7: a lock stays held that was granted for a request whose client has gone
	ShowReleasing           // R7: a client is shown a lock that is being released for it
	TellReleasing           // R7: a request is told of a hold that is being released
	LeaveEndsTold           // R7: a request that ends has a lock released of which the client was told otherwise
	TakeAboveLow            // R10: stamps are issued below what a session has decided, and not registered
	ValidFromAnswer         // R3: a client believes in its locks from when the answer came
	BindNotReconciled       // R3: it goes on with locks that a leader does not know
	ValidityIgnored         // R5: it acts under a lock in which it may not believe any more
	GrantAfterRelease       // R7: it takes a grant for a new one that has crossed its release
	BoundIgnored            // R10: it makes stamps beyond its bound
	LowWhileTaking          // R11: it decides stamps that are on their way to it
	DoubtIsDone             // R11: a write without an answer counts as decided
	DoubtUnanswered         // R11: a doubt counts as soon as it is said
	SealSomeStores          // R12: a writer that seals a group raises the fence of one of its stores only
	StoreJoinsAtOnce        // R9: writes go into a new store before every writer of the group seals it
	SessionsOverQuota       // an account may have one session more than its limit
	LocksOverQuota          // a session may hold one lock more than its limit
	QuotaOfReleased         // a lock that a session is releasing counts for the limit of its account
	BelieveUntilClosed      // R5: a client believes in its locks while its session is being closed
	QuotaOfEnded            // liveness: sessions that have ended count for the limit of their account
	TakeRegistersLate       // R10: stamps are registered with the tick after they are issued
	UnrefusedBeforeOpen     // liveness: a leader changes the membership before it has applied an entry of its own term
	UnrefusedSecond         // liveness: a second change is proposed while one is under way
	UnrefusedInJoint        // liveness: a change is proposed between the two configurations of another
	UnrefusedKind           // liveness: a change of unknown kind is proposed
	UnrefusedZero           // liveness: a change of member 0 is proposed
	UnrefusedMember         // liveness: a voter is added as a learner
	UnrefusedRemoved        // I6: the ID of a removed member is used again
	UnrefusedGeneration     // liveness: a node is added under an ID that has a generation already
	UnrefusedMembersMax     // I7: a member more than a snapshot holds is added
	UnrefusedRemovedMax     // liveness: a member is added that cannot be removed, as nobody could remember it
	UnrefusedAddress        // I7: an address of any length is recorded
	UnrefusedLocal          // liveness: an operator records an address that only its own machine can dial
	UnrefusedTaken          // liveness: an operator records an address at which another node is on record
	UnrefusedStranger       // liveness: an ID that is no member's any more is replaced
	UnrefusedLastGeneration // I6: a node is replaced though its generations are used up
	UnrefusedReplaced       // liveness: a member is replaced twice at once
	UnrefusedUnregistered   // I6: a learner votes though its incarnation is not on record
	UnrefusedBehind         // liveness: a learner votes that is not connected
	UnrefusedQuorum         // liveness: voters are removed though the rest is no quorum
	UnrefusedLeader         // liveness: a leader removes itself
	UnrefusedFarFloor       // liveness: an operator raises the floor by years without force
	UnrefusedLastFloor      // liveness: the floor is raised to the end of time
	UnrefusedTransfer       // liveness: the leadership is transferred to a node that cannot lead
	AdmitForeign            // I6: a node of another cluster is let in
	AdmitFounder            // I10: a node that is to form another cluster is let in
	AdmitOtherFounders      // liveness: founders with another list of members are let in
	AdmitTick               // I5: a node with another length of a tick is let in
	AdmitLayout             // liveness: founders with another layout of IDs are let in
	AdmitStranger           // I7: any number of nodes that are no members are let in
	AdmitCloned             // I6: two processes from copies of one directory, in their same start, are let in
	AdmitStrangers          // I7: any number of unknown nodes that may be newer members is let in
	AdmitNeedless           // I7: a node that has a leader lets in unknown nodes that may be newer members
	StopUnknown             // liveness: a founder that comes late stops members that it does not know
	UnrefusedForgotten      // I6: a member is removed though nobody could remember it
	ForgetReplaced          // I6: a replaced member that no record has is not told that its directory is of no more use
	RefuseSlowLearner       // I6: a new learner is refused because its hello was slower than its first snapshot
	LeaveInTurns            // liveness: two leaders that are to be replaced transfer the leadership to each other for ever
	count
)

// String returns the name of the bug.
func (m Mutant) String() string { return names[m] }

// Pick returns bug if m is switched on, and right in every normal build.
func Pick[T any](m Mutant, bug, right T) T {
	if On(m) {
		return bug
	}
	return right
}

// IsDirected reports whether the bug does harm so rarely, or only after such unusual requests,
// that random runs take too long to find it. A test in internal/core/replica creates the
// situation.
func (m Mutant) IsDirected() bool {
	switch m {
	case OpenOnOlderTerm, ReleaseLate, LeaseSurvivesTransfer, ForgetRemoved, VoteAfterRestart, VoteAfterTermChange, VoteForItselfInPromise, CampaignUnsynced, CountEarlyGrants, EarlyUndurableLog, LeaseWithoutSlack, LeaseFromConfirm, CountUnpromised,
		WaitForDeaf, CampaignTogether, ResignedCampaigns,
		PromiseWaivedOnRefusal, LengthenWrongly, UnboundedLog, MergeSnapshotNotes, AnswerAnyTerm, CountNewVoters, ExpelEarly, QueueResponses,
		LimitFromAnswer, WaitWithoutRate, ReportNotAsLeader, ReportForgets, ReportOwnOnly, TellAfterGivingUp, TellUnsaid, ReelectedSkipsWait,
		ClientFloorByAnyone, ReserveFromClock, LeadUnbounded, HoldAll, FarOffAtOnce, CarryNothing, FloorWithoutMargin, WholeLease, RenewRarely, LeaseBeforeEpoch, KeepAddress, RecordLocal,
		FenceByApplied, CompactedIsClean, NoConfigFence, CountAnyone, OldConfigCounts, OwnerReusesNumber, CountLateTold, TimelineFillsQueue, TimelinesWithLeader,
		OwnerWaitWithoutRate, OwnerLeaseFromAnswer, OwnerLeaseOverTouched, LeaseOutlivesEnd, LeaseEndUnfenced, LeaseOffEarly,
		KeepWithoutRound, LostWakeup, ClaimBeforeFence, ReleaseByName, LastInFirstOut, DigestMissesHolds, ReleaseUntold, AnswerWhileReleasing, RedisSessionBroken:
		return true
	}
	return m >= UnrefusedBeforeOpen
}

// IsOfClient reports whether it is a client that has the bug. Tests in internal/core/search notice it.
func (m Mutant) IsOfClient() bool { return IgnoreMoved <= m && m <= KeepNoFloor }

// IsOfTable reports whether the bug is one of the table of timelines. Tests in internal/core/timeline notice it.
func (m Mutant) IsOfTable() bool { return GrantKeepsFloor <= m && m <= RestoreTimelinesBelow }

// IsOfFrontier reports whether the bug is one of frontiers. Tests in internal/core/frontier notice it.
func (m Mutant) IsOfFrontier() bool { return DeathWithoutHole <= m && m <= FrontierAtLow }

// IsOfSession reports whether the bug is one of sessions. Tests in internal/core/session notice it.
func (m Mutant) IsOfSession() bool { return TimersNotRestarted <= m && m <= TTLMayGrow }

// All returns every bug.
func All() []Mutant {
	list := make([]Mutant, 0, count-1)
	for m := None + 1; m < count; m++ {
		list = append(list, m)
	}
	return list
}
