package replica

import (
	"slices"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"

	"github.com/isotone/isotone/internal/core/mutant"
)

// Succession: how a cluster gets a new leader within milliseconds of the old one's death. Raft
// waits for an election timeout. Here a follower forgets its leader
//
//   - when the leader's address refuses connections: its process has ended, or
//   - when it has not heard from the leader for some ticks, see [succession.suspectTicks].
//
// Voters that have forgotten their leader campaign by rank: the place of their ID among those that
// may lead, rankTicks apart. So normally one campaigns at a time, and votes are not split. A voter
// that has granted a vote gives the candidate graceTicks, one that has granted a pre-vote only
// preVoteGraceTicks, and only once: a node that does not hear asks again and again. A voter that has
// refused because its own log is longer campaigns as if the candidate were not there, as it cannot be elected.
//
// On slow disks a term that somebody gives up too early is lost, and the next one as well. So a
// node whose vote is being written neither campaigns nor grants pre-votes, waits longer for the outcome
// as its disk is slower, see [Replica.tickElection], and after terms without a leader, see
// [succession.patience]. It loses nothing: its vote in another term has to wait for the same disk. A
// candidate that dies is waited for until its voters have written their votes, for twice as long
// again, and for graceTicks.
//
// All of this only decides when a node asks for votes. Raft decides who leads, promises (I5) when
// votes are granted, and a pre-vote keeps a node that alone has lost the leader from deposing it:
// the others hold the request while they have a leader. Raft's own election timeouts, twice as
// long at least, stay in force behind it.

const (
	// suspectTicksMin is how long a follower hears nothing before it forgets its leader. A leader
	// sends a heartbeat with every tick.
	suspectTicksMin = electionTicks / 2
	// rankTicks separates two candidates.
	rankTicks = 2
	// graceTicks is how long a voter does not campaign against a candidate that it voted for; longer on slow
	// disks, see [Replica.tickElection].
	graceTicks = electionTicks
	// retryTicks is how long a node waits for pre-votes before it asks again; twice as long each
	// time, up to electionTicks.
	retryTicks = electionTicks / 4
	// preVoteGraceTicks is how long a voter that has granted a pre-vote leaves the candidate alone. If that
	// hears a quorum, the request for the vote itself follows a round trip later.
	preVoteGraceTicks = retryTicks
	// outcomeTicksMax bounds how much longer a node with a slow disk waits for the outcome of its
	// vote: some writes of half a second each.
	outcomeTicksMax = 10 * electionTicks
	// patienceDoublingsMax bounds [succession.patience] to 8: Raft then leaves an election 160 ticks at
	// least.
	patienceDoublingsMax = 3
	// delayWindowTicks is how long the longest delay between two messages of the leader is
	// remembered at least.
	delayWindowTicks = 100 * electionTicks
)

// succession is a follower's view of its leader, and of its own turn to lead.
type succession struct {
	*facts
	promised promised
	// heardAt is the tick of the leader's latest message. delays are the longest times in ticks
	// between two of them, in the window that began at windowAt and the one before.
	heardAt, windowAt uint64
	delays            [2]uint64
	// learnsAt is the tick from which on delays count.
	learnsAt uint64
	// campaignAt is the tick at which this node asks for votes, 0 for not before Raft does.
	campaignAt uint64
	// tries is how often it has asked since it last had a leader.
	tries int
	// granters and rejecters are the peers that have granted and refused this candidate their vote
	// in its term.
	granters, rejecters []uint64
	// early are votes that this candidate was granted before its own term is durable.
	early []*raftpb.Message
	// graceUntil is the tick until which this candidate does not campaign against one to which it has
	// granted a pre-vote.
	graceUntil uint64
	// outcomeTicks is for how many ticks more this node waits for the outcome of its vote.
	outcomeTicks uint64
	// missing is the leader that was forgotten, until it is heard again; lost is its leadership, and
	// lostAt the tick of its last message.
	missing uint64
	lost    leadership
	lostAt  uint64
}

// heardFromLeader notes a message of the leader.
func (s *succession) heardFromLeader(m *raftpb.Message) {
	if m.GetTerm() < s.term || m.GetFrom() != s.lead {
		return // heardAt is set when it becomes the leader
	}
	if s.ticks-s.windowAt >= delayWindowTicks {
		s.windowAt, s.delays = s.ticks, [2]uint64{0, s.delays[0]}
	}
	if s.ticks >= s.learnsAt {
		s.delays[0] = max(s.delays[0], s.ticks-s.heardAt)
	}
	s.heardAt = s.ticks
}

// suspectTicks is how long a leader may be silent: three times as long as it recently was, so
// that a busy machine does not depose it, and no longer than Raft waits.
func (s *succession) suspectTicks() uint64 {
	return min(max(suspectTicksMin, 3*max(s.delays[0], s.delays[1])), electionTicks)
}

// checkLeader forgets a leader that has been silent for too long.
func (r *Replica) checkLeader() {
	if r.isFollowing() && r.ticks-r.succession.heardAt >= r.succession.suspectTicks() {
		r.forgetLeader()
	}
}

// connectionRefused handles that the address of a peer refuses connections.
func (r *Replica) connectionRefused(id uint64) {
	if r.isFollowing() && r.lead == id {
		if mutant.On(mutant.PromiseWaivedOnRefusal) {
			r.succession.promised.until = 0
		}
		r.forgetLeader()
	}
}

func (f *facts) isFollowing() bool { return f.role == raft.StateFollower && f.lead != raft.None }

// forgetLeader has this node grant votes, and campaign when its turn comes.
func (r *Replica) forgetLeader() {
	s := &r.succession
	s.missing, s.lost, s.lostAt = r.lead, leadership{r.term, r.lead}, s.heardAt
	r.counters.LeadersForgotten++
	_ = r.raw.ForgetLeader() // an error means that there is none
	r.observe()
	// Two voters have promised until the same time, so the ranks count from there.
	s.campaignAt = max(r.ticks, r.succession.promised.until) + rankTicks*r.succession.rank()
	r.replayVotes()
}

// rank returns how many voters campaign before this node: those with lower IDs that can be reached.
func (s *succession) rank() uint64 { return s.rankWithout(raft.None) }

// rankWithout is rank if the given node, which cannot lead, does not count.
func (s *succession) rankWithout(out uint64) (rank uint64) {
	for _, id := range s.conf.GetVoters() {
		if id < s.cfg.Self.NodeID && id != out && s.isReachable(id) {
			rank++
		}
	}
	return rank
}

// isReachable reports whether a peer is connected and not the leader that was forgotten.
func (s *succession) isReachable(id uint64) bool {
	p := s.peers[id]
	return p != nil && p.session != 0 && id != s.missing
}

// heardFrom notes that a peer has sent something.
func (s *succession) heardFrom(id uint64) {
	if id == s.missing {
		s.missing = raft.None
	}
}

// campaign asks for votes if it is this node's turn. A candidate waits for the votes that it has
// asked for until Raft's election timeout, unless they cannot elect it.
func (r *Replica) campaign() {
	s := &r.succession
	if s.campaignAt == 0 || r.ticks < s.campaignAt || r.lead != raft.None || !r.succession.mayVote() || r.role == raft.StateCandidate && !r.succession.isRejected() {
		return
	}
	tries := min(s.tries, 3) // further apart each time: two that are far from each other would ask in step
	s.campaignAt = r.ticks + min(uint64(retryTicks)<<tries, electionTicks) + rankTicks<<tries*r.succession.rank()
	s.tries++
	if !r.isVoter(r.cfg.Self.NodeID) {
		return // Raft would log a warning each time
	}
	_ = r.raw.Campaign() // Raft ignores it where this node cannot lead now
	r.observe()
}

// noteVote handles the answer of a voter to this candidate. When it cannot win any more,
// because the votes were split, it campaigns again when its turn comes.
func (s *succession) noteVote(m *raftpb.Message) {
	list := &s.granters
	if m.GetReject() {
		list = &s.rejecters
	}
	if s.role != raft.StateCandidate || m.GetTerm() != s.term || slices.Contains(*list, m.GetFrom()) {
		return
	}
	*list = append(*list, m.GetFrom())
	if s.isRejected() {
		wait := rankTicks * s.rank()
		if s.mayLose() {
			wait += graceTicks // for the winner
		}
		s.campaignAt = max(s.ticks+wait, s.graceUntil)
	}
}

// mayLose reports whether enough voters may have voted for another candidate to elect it: those that
// have refused this one their vote, and those that can be reached and have not answered.
func (s *succession) mayLose() bool {
	voters, possible := s.conf.GetVoters(), 0
	for _, id := range voters {
		mayAnswer := s.isReachable(id) && !slices.Contains(s.granters, id)
		if id != s.cfg.Self.NodeID && (mayAnswer || slices.Contains(s.rejecters, id)) {
			possible++
		}
	}
	return possible >= len(voters)/2+1
}

// isRejected reports whether too few voters are left to elect this candidate: those that have
// granted their vote, and those that can be reached and have not answered.
func (s *succession) isRejected() bool {
	voters, possible := s.conf.GetVoters(), 1
	for _, id := range voters {
		undecided := s.isReachable(id) && !slices.Contains(s.rejecters, id)
		if id != s.cfg.Self.NodeID && (undecided || slices.Contains(s.granters, id)) {
			possible++
		}
	}
	return len(s.rejecters) > 0 && possible < len(voters)/2+1
}

// leaderChanged records that another leader is known, or none.
func (s *succession) leaderChanged() {
	switch again := s.lost == (leadership{s.term, s.lead}); {
	case again && s.lostAt >= s.learnsAt:
		s.delays[0] = max(s.delays[0], s.ticks-s.lostAt) // it was only silent, and will be given more time
	case !again && s.lead != raft.None && s.raw.BasicStatus().HardState.GetVote() != s.lead:
		// This node has missed the election, for instance because it was cut off. For some round trips
		// TCP brings what it has kept in bursts, which says nothing of the leader.
		s.learnsAt = s.ticks + electionTicks
	}
	s.campaignAt, s.heardAt, s.tries, s.graceUntil, s.outcomeTicks = 0, s.ticks, 0, 0, 0
	for _, p := range s.peers { // order-free: each by itself
		p.preVote.granted = 0
	}
	if s.lead == raft.None {
		// Someone else has begun an election, or this node was deposed.
		s.campaignAt = s.ticks + graceTicks + rankTicks*s.rank()
		if s.hasResigned() {
			s.campaignAt += graceTicks // the others have heard from it until now, and may have better links
		}
	}
}

// preVoteAsked is a peer's latest request for a pre-vote.
type preVoteAsked struct {
	// at is the tick at which it arrived.
	at uint64
	// isAhead is set if it was for a later term than this node's. One of a term that is over, which
	// was late or held, is refused for its term: that says nothing of the log.
	isAhead bool
	// granted is the term of the latest pre-vote that this node granted it since a leader was lost, 0:
	// none.
	granted uint64
}

// askedForVote notes who asks, and when that request arrived, before Raft answers.
func (s *succession) askedForVote(m *raftpb.Message, at uint64) {
	if p := s.peers[m.GetFrom()]; p != nil && m.GetType() == raftpb.MsgPreVote {
		p.preVote.at, p.preVote.isAhead = at, m.GetTerm() > s.term
	}
}

// answeredVote handles this node's answer to a candidate.
func (s *succession) answeredVote(m *raftpb.Message) {
	p := s.peers[m.GetTo()]
	switch {
	case s.campaignAt == 0:
	case !m.GetReject():
		if s.isGone(m, p) {
			return
		}
		grace := s.ticks + rankTicks*s.rank() + graceTicks
		if m.GetType() == raftpb.MsgPreVoteResp {
			grace -= graceTicks - preVoteGraceTicks
		}
		s.campaignAt = max(s.campaignAt, grace)
		if s.role == raft.StateCandidate { // the other campaigns in a later term
			s.graceUntil = grace
		}
	case m.GetType() == raftpb.MsgPreVoteResp && p != nil && p.preVote.isAhead && !s.hasResigned():
		// Raft grants every request for a pre-vote in a later term but those of shorter logs.
		wait := rankTicks * s.rankWithout(m.GetTo())
		s.campaignAt = min(s.campaignAt, s.ticks+mutant.Pick(mutant.CampaignTogether, 0, wait))
	}
}

// hasResigned reports whether this node was the latest leader, and gave that up, normally because it
// heard from no quorum. Its log is longer by what it could not commit. If it campaigned before the others because
// of that, a node whose links come and go would lead again and again.
func (s *succession) hasResigned() bool {
	return s.elected.leader == s.cfg.Self.NodeID && !mutant.On(mutant.ResignedCampaigns)
}

// isGone reports whether a candidate has probably given up, to which this node grants its vote by m. p is the view of
// the candidate, nil if that is no member. It has given up if it is not connected any more, or if its request for a
// pre-vote was held for so long that it would have asked again. A candidate that asks again for a pre-vote that it was
// granted already has not received it, or cannot win: it must not delay the turn of this node each time.
func (s *succession) isGone(m *raftpb.Message, p *peerView) bool {
	if p == nil || m.GetType() != raftpb.MsgPreVoteResp {
		return p != nil && p.session == 0
	}
	again := p.preVote.granted == m.GetTerm() && !mutant.On(mutant.WaitForDeaf)
	p.preVote.granted = m.GetTerm()
	return again || p.session == 0 || s.ticks-p.preVote.at > retryTicks
}

// tickElection lets one tick pass for Raft, whose timeouts are about elections, and for this node's
// own turn. Both stand still while this node's vote is being written: whatever it asks for in a
// later term has to wait for the same disk. They stand still for twice as long again, up to
// outcomeTicksMax, because the disks of the others are probably as slow, and were perhaps busy.
func (r *Replica) tickElection() {
	s := &r.succession
	switch voted, durable := r.vote(); {
	case r.lead != raft.None || !voted:
	case !durable:
		s.outcomeTicks = min(s.outcomeTicks+2, outcomeTicksMax)
		s.postpone()
		return
	case s.outcomeTicks > 0:
		s.outcomeTicks--
		s.postpone()
		return
	case r.ticks%r.succession.patience() != 0:
		return
	}
	r.raw.Tick()
	r.observe()
}

// postpone puts this node's turn off by a tick.
func (s *succession) postpone() {
	if s.campaignAt > 0 {
		s.campaignAt++
	}
}

// vote reports whether this node has voted in its term, for itself or another, and whether that
// vote is on disk.
func (f *facts) vote() (voted, durable bool) {
	h := f.raw.BasicStatus().HardState
	return h.GetVote() != raft.None, h.GetTerm() == f.durable.term && h.GetVote() == f.voted
}

// isWriting reports whether this node's vote in a term without a leader is not on disk yet.
func (f *facts) isWriting() bool {
	if f.lead != raft.None {
		return false
	}
	voted, durable := f.vote()
	return voted && !durable
}

// patience returns how many times as long as usual Raft leaves a node that has voted: twice as long
// with each term that has ended without a leader. A candidate whose own disk is fast does not know
// how long the writes of its voters take. If it waited for less, it would give up each term just
// before they answer.
func (s *succession) patience() uint64 {
	if s.term <= s.elected.term+1 {
		return 1
	}
	return 1 << min(s.term-s.elected.term-1, patienceDoublingsMax)
}
