package client

import (
	"math/rand/v2"
	"time"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/core/search"
)

const (
	// memberBackoffMax bounds the pause after a failure, before jitter, for a member that is not
	// needed because others give IDs.
	memberBackoffMax = 2 * time.Second
	// quotaPauseMax bounds the pause that a node asks for because of a quota.
	quotaPauseMax = 10 * time.Second
)

// backoff returns the pause after that many failures in a row.
func backoff(failures int) time.Duration { return backoffTo(failures, search.PauseMax) }

func backoffTo(failures int, most time.Duration) time.Duration {
	return search.Jitter(rand.N[time.Duration]).Pause(failures, most)
}

// quotaPause returns the pause after that many refusals in a row because of a quota: what the
// node asks for, if it does, with a jitter so that not all clients come back at once.
func quotaPause(refusal *isotone.Error, failures int) time.Duration {
	pause := min(refusal.RetryAfter, quotaPauseMax)
	if pause <= 0 {
		return backoffTo(failures, search.RefusedPauseMax)
	}
	return pause + rand.N(pause/8+1)
}

// estimate derives the answer timeout from a smoothed mean and deviation, as TCP derives its
// retransmission timeout (RFC 6298).
type estimate struct {
	mean, deviation time.Duration
}

const (
	// timeoutMin is longer than most pauses of a healthy machine. A false suspicion is
	// harmless.
	timeoutMin = 25 * time.Millisecond
	timeoutMax = 5 * time.Second
	// timeoutInitial applies before the first answer.
	timeoutInitial = 250 * time.Millisecond
)

func (e *estimate) add(took time.Duration) {
	if e.mean == 0 {
		e.mean, e.deviation = took, took/2
		return
	}
	difference := e.mean - took
	e.deviation += (max(difference, -difference) - e.deviation) / 4
	e.mean -= difference / 8
}

// double doubles the timeout, which shrinks again with every answer.
func (e *estimate) double() {
	timeout := min(2*e.timeout(), timeoutMax)
	e.mean = max(e.mean, 1)
	e.deviation = (timeout - e.mean) / 4
}

func (e *estimate) timeout() time.Duration {
	if e.mean == 0 {
		return timeoutInitial
	}
	return min(max(e.mean+4*e.deviation, timeoutMin), timeoutMax)
}
