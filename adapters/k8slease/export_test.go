package k8slease

import (
	"context"
	"time"
)

// EndSession ends the session with which the lock is held, as the cluster may.
func (l *Lock) EndSession(ctx context.Context) { _ = l.term.session.Close(ctx) }

// LengthenLease has a renewal promise twice the time for which the session is valid.
func (l *Lock) LengthenLease() { l.term.ttl *= 2 }

// ValidFor is for how long the session is valid.
func (l *Lock) ValidFor() time.Duration { return l.term.session.ValidFor() }
