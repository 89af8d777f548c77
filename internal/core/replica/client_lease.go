package replica

import (
	"go.etcd.io/raft/v3"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/core/oracle"
)

// Worker leases of clients (I9): programs that make ids themselves. Only a leader takes
// their requests, and answers each when it is applied in the term in which it was
// proposed. Within its term a leader's entries are applied in the order in which it
// proposed them and none gets lost, so the requests form a queue.
//
// A request whose answer is given up may be carried out nevertheless. The client asks
// again in the same session, and is told what it holds.

// clientLeasesMax is how many of these requests may be on their way at once. Each is an
// entry in the log; a client needs one every few seconds.
const clientLeasesMax = 256

// LeaseRequest is a client's request for one worker lease, or its return of one.
type LeaseRequest struct {
	// Token means something to the caller only.
	Token uint64
	// Session tells the client's process from all others; random, not 0. The process
	// holds one lease at a time for each fixed worker, and one for any.
	Session uint64
	// Space is how the client makes ids; zero: as the cluster does.
	Space oracle.Space
	// Fixed is the worker that it insists on, or oracle.AnyWorker.
	Fixed int
	// FromMillis is from when on it wants to make ids, in unix milliseconds, and
	// LengthMillis for how long, at most oracle.LeaseMax.
	FromMillis, LengthMillis uint64
	// Release, if not nil, gives a lease back instead.
	Release *oracle.Used
}

// LeaseAnswer answers a [LeaseRequest].
type LeaseAnswer struct {
	Token uint64
	// Worker, Start and End are the lease, Space says how its ids are made. They are set
	// when Err is nil and nothing was given back.
	Worker     uint16
	Start, End uint64
	Space      oracle.Space
	Err        *isotone.Error
}

// clientLease is a request that was proposed and is not applied yet.
type clientLease struct {
	token, session, arrived uint64
	answered                bool // its time ran out
}

// leaseClient proposes what a client asks for, or answers it at once.
func (r *Replica) leaseClient(q LeaseRequest) {
	if r.role != raft.StateLeader {
		r.answerLease(LeaseAnswer{Token: q.Token, Err: r.redirect()})
		return
	}
	if len(r.leading.clients) >= clientLeasesMax {
		r.answerLease(LeaseAnswer{Token: q.Token, Err: isotone.ErrOverloaded})
		return
	}
	c, err := r.clientCommand(q)
	if err != nil {
		r.answerLease(LeaseAnswer{Token: q.Token, Err: err})
		return
	}
	if !r.propose(c) {
		// A transfer is under way, or the log is full.
		r.answerLease(LeaseAnswer{Token: q.Token, Err: isotone.ErrOverloaded})
		return
	}
	r.leading.clients = append(r.leading.clients, clientLease{token: q.Token, session: q.Session, arrived: r.ticks})
}

func (r *Replica) clientCommand(q LeaseRequest) (oracle.Command, *isotone.Error) {
	if q.Release != nil {
		if q.Session == 0 {
			return oracle.Command{}, (&oracle.LeaseRefusal{Reason: oracle.LeaseMalformed}).Err()
		}
		return oracle.Command{Kind: oracle.KindRelease, Release: oracle.Release{Session: q.Session, Used: []oracle.Used{*q.Release}}}, nil
	}
	space := q.Space
	if space == (oracle.Space{}) {
		if space = r.state.Space; space == (oracle.Space{}) {
			space = r.cfg.Space
		}
	}
	l := oracle.LeaseRequest{
		Space: space, Session: q.Session, Slots: 1, Fixed: q.Fixed, From: q.FromMillis, Until: q.FromMillis + q.LengthMillis,
	}
	if !l.IsSound() {
		return oracle.Command{}, (&oracle.LeaseRefusal{Reason: oracle.LeaseMalformed}).Err()
	}
	return oracle.Command{Kind: oracle.KindLease, Lease: l}, nil
}

// clientLeased answers the client whose command was applied.
func (r *Replica) clientLeased(term, session uint64, o oracle.Outcome) {
	if r.role != raft.StateLeader || term != r.term {
		return // whoever proposed it has told the client so
	}
	if len(r.leading.clients) == 0 || r.leading.clients[0].session != session {
		panic("replica: a lease was applied in another order than it was proposed in")
	}
	q := r.leading.clients[0]
	r.leading.clients = r.leading.clients[1:]
	if q.answered {
		return
	}
	a := LeaseAnswer{Token: q.token}
	switch {
	case o.Refusal != nil:
		a.Err = o.Refusal.Err()
	case len(o.Leases) > 0:
		l := o.Leases[0]
		a.Worker, a.Start, a.End, a.Space = l.Worker, l.Start, l.End, r.state.Space
	}
	r.answerLease(a)
}

// expireClients gives up requests that have waited too long. They keep their place.
func (r *Replica) expireClients() {
	for i := range r.leading.clients {
		q := &r.leading.clients[i]
		if r.ticks-q.arrived < uint64(r.cfg.RequestTicks) {
			return
		}
		if !q.answered {
			q.answered = true
			r.answerLease(LeaseAnswer{Token: q.token, Err: isotone.ErrDeadlineExceeded})
		}
	}
}

// failClients answers requests whose outcome this node will not learn in time.
func (r *Replica) failClients(list []clientLease) {
	for _, q := range list {
		if !q.answered {
			r.answerLease(LeaseAnswer{Token: q.token, Err: r.redirect()})
		}
	}
}

func (r *Replica) answerLease(a LeaseAnswer) {
	r.effects.LeaseAnswers = append(r.effects.LeaseAnswers, a)
}
