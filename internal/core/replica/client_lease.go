package replica

import (
	"cmp"

	"go.etcd.io/raft/v3"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/core/oracle"
)

// Worker leases of clients, which make ids themselves (I9). A leader answers a request when
// it is applied in the term of its proposal. One that is applied although its answer failed is repeated
// by the client in the same session, which then learns which lease it holds.

// clientLeasesMax bounds the requests that are proposed and not applied. Each is a log entry;
// a client makes one every few seconds.
const clientLeasesMax = 256

// LeaseRequest is a client's request for one worker lease, or its release of one.
type LeaseRequest struct {
	// Token identifies the request to the caller.
	Token uint64
	// Session identifies the client's process; random, not 0. A session holds at most one
	// lease of each fixed worker and one of any worker.
	Session uint64
	// Space is the client's layout of ids. Zero stands for the cluster's.
	Space oracle.Space
	// Fixed is the requested worker, or oracle.AnyWorker.
	Fixed int
	// FromMillis is the unix millisecond of the first id, LengthMillis the length of the
	// lease, 1 to oracle.LeaseMax.
	FromMillis, LengthMillis uint64
	// Release, if not nil, releases a lease instead. Only Token and Session count then.
	Release *oracle.Used
	// Revoke, if not nil, revokes a lease of any process instead, for an operator; a Start of 0
	// stands for that on record. Only Token counts then.
	Revoke *oracle.Revocation
}

// LeaseAnswer completes the [LeaseRequest] with this token.
type LeaseAnswer struct {
	Token uint64
	// Worker, Start and End are the lease, in unix milliseconds, and Space its layout. Zero
	// after an error or a release. A revoked lease is answered once that is applied.
	Worker     uint16
	Start, End uint64
	Space      oracle.Space
	// Err is nil if the request was carried out, else of code invalid_argument, not_leader,
	// no_leader, overloaded, deadline_exceeded, no_worker, not_found or clock.
	Err *isotone.Error
}

// clientLeases are the requests of clients in a leader's term. Their label is the session.
type clientLeases struct {
	proposals
	tail *tail
}

func newClientLeases(f *facts, t *tail) clientLeases {
	fail := func(token uint64, err *isotone.Error) { f.answerLease(LeaseAnswer{Token: token, Err: err}) }
	return clientLeases{proposals: proposals{facts: f, fail: fail}, tail: t}
}

// request proposes a client's request, or answers it at once.
func (cl *clientLeases) request(q LeaseRequest) {
	if q.Revoke != nil {
		q.Session = 0 // of no client
	}
	if err := cl.propose(q); err != nil {
		cl.answerLease(LeaseAnswer{Token: q.Token, Err: err})
		return
	}
	cl.add(proposal{token: q.Token, label: q.Session})
}

func (cl *clientLeases) propose(q LeaseRequest) *isotone.Error {
	if cl.role != raft.StateLeader {
		return cl.redirect()
	}
	if len(cl.list) >= clientLeasesMax {
		return isotone.ErrOverloaded
	}
	c, err := cl.command(q)
	if err == nil && !cl.tail.propose(c) {
		err = isotone.ErrOverloaded
	}
	return err
}

// command returns the command for a request, or why there is none.
func (cl *clientLeases) command(q LeaseRequest) (oracle.Command, *isotone.Error) {
	l := oracle.LeaseRequest{
		Space: cmp.Or(q.Space, cl.state.Space, cl.cfg.Space), Session: q.Session,
		Slots: 1, Fixed: q.Fixed, From: q.FromMillis, Until: q.FromMillis + q.LengthMillis,
	}
	switch {
	case q.Revoke != nil:
		return cl.revocation(*q.Revoke)
	case q.Release != nil && q.Session != 0:
		return oracle.Command{Kind: oracle.KindRelease, Release: oracle.Release{Session: q.Session, Used: []oracle.Used{*q.Release}}}, nil
	case q.Release == nil && l.IsSound() && isBeforeEpoch(l.Space, max(l.From, cl.millis())): // any time may be asked for
		return oracle.Command{}, errBeforeEpoch(l.Space)
	case q.Release == nil && l.IsSound():
		return oracle.Command{Kind: oracle.KindLease, Lease: l}, nil
	}
	return oracle.Command{}, (&oracle.LeaseRefusal{Reason: oracle.LeaseMalformed}).Err()
}

// revocation returns the command that revokes a lease, or why there is none.
func (cl *clientLeases) revocation(v oracle.Revocation) (oracle.Command, *isotone.Error) {
	l, known := cl.state.Worker(v.Worker)
	if !known || l.Session == 0 || v.Start != 0 && v.Start != l.Start {
		held := oracle.WorkerLease{Worker: v.Worker, Start: v.Start}
		return oracle.Command{}, (&oracle.LeaseRefusal{Reason: oracle.LeaseNotHeld, Held: held}).Err()
	}
	v.Start = l.Start
	return oracle.Command{Kind: oracle.KindRevoke, Revoke: v}, nil
}

// commandApplied answers the client whose command, proposed in term, was applied.
func (cl *clientLeases) commandApplied(term, session uint64, o oracle.Outcome) {
	if cl.role != raft.StateLeader || term != cl.term {
		return // the leader of that term has failed the request
	}
	token, waits := cl.applied(session)
	if !waits {
		return
	}
	a := LeaseAnswer{Token: token}
	switch {
	case o.Refusal != nil:
		a.Err = o.Refusal.Err()
	case len(o.Leases) > 0:
		l := o.Leases[0]
		a.Worker, a.Start, a.End, a.Space = l.Worker, l.Start, l.End, cl.state.Space
	}
	cl.answerLease(a)
}

func (f *facts) answerLease(a LeaseAnswer) {
	f.effects.LeaseAnswers = append(f.effects.LeaseAnswers, a)
}
