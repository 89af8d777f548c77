package oracle

import "github.com/isotone/isotone/internal/core/mutant"

// Revocations of worker leases (I9; docs/decisions/0006-worker-leases.md). A holder that was
// told of an End makes ids below it, and nobody can ask it whether it has stopped. So a
// revocation leaves the End as it is, and only ends the renewals: the worker is free when the
// lease has ended, or when its holder releases it.

// Revocation revokes one grant.
type Revocation struct {
	Worker uint16
	// Start identifies the grant among those of the worker, so that a revocation that arrives
	// late or twice does nothing to the next holder.
	Start uint64
}

// revoke applies a revocation. The outcome has the lease, or a refusal if nobody holds it.
func (s *State) revoke(r Revocation) Outcome {
	i, ok := s.findWorker(r.Worker)
	if !ok || s.Workers[i].Session == 0 || s.Workers[i].Start != r.Start {
		return Outcome{Refusal: &LeaseRefusal{Reason: LeaseNotHeld, Held: WorkerLease{Worker: r.Worker, Start: r.Start}}}
	}
	l := &s.Workers[i]
	l.Revoked = true
	o := Outcome{Leases: []WorkerLease{*l}}
	if mutant.On(mutant.RevokeAtOnce) {
		l.End = max(l.Start+1, min(l.End, s.millis()))
	}
	return o
}

// refuseRevoked returns why a process whose lease was revoked is granted no other one, or nil.
// A member needs a worker in any case. A client's session has to wait for the end of the lease:
// its process learns by the refusal that it was revoked. So has whoever wants that worker and
// no other.
func (s *State) refuseRevoked(q LeaseRequest, l WorkerLease) *LeaseRefusal {
	if !l.Revoked || l.End <= s.elapsed(q.From) || q.Node != 0 && q.Fixed == AnyWorker {
		return nil
	}
	return &LeaseRefusal{Reason: LeaseRevoked, Held: l}
}

// HasEnded reports whether the lease l has ended for somebody whose clock shows the unix
// millisecond now, so that he may be granted its worker.
func (s *State) HasEnded(l WorkerLease, now uint64) bool { return l.End <= s.elapsed(now) }
