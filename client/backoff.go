package client

import (
	"math/rand/v2"
	"time"

	"github.com/isotone/isotone"
)

const (
	// backoffMin and backoffMax bound the pause after a failure, before jitter. An election may
	// take a few milliseconds only.
	backoffMin = time.Millisecond
	backoffMax = 100 * time.Millisecond
	// searchPauseMax bounds the pause between two questions for the leader for the first
	// searchEager of a search. Most elections end in that time.
	searchPauseMax = 8 * time.Millisecond
	searchEager    = time.Second
	// memberBackoffMax bounds it for a member that is not needed because others give IDs.
	memberBackoffMax = 2 * time.Second
	// refusedBackoffMax bounds it for a node that refuses the client, which ends when somebody
	// changes the credentials here or there.
	refusedBackoffMax = time.Second
	// quotaPauseMax bounds the pause that a node asks for because of a quota.
	quotaPauseMax = 10 * time.Second
)

// backoff returns the pause after that many failures in a row. It is exponential, with a
// jitter of up to half.
func backoff(failures int) time.Duration { return backoffTo(failures, backoffMax) }

func backoffTo(failures int, most time.Duration) time.Duration {
	pause := min(backoffMin<<min(failures, 16), most)
	return pause/2 + rand.N(pause)
}

// quotaPause returns the pause after that many refusals in a row because of a quota: what the
// node asks for, if it does, with a jitter so that not all clients come back at once.
func quotaPause(refusal *isotone.Error, failures int) time.Duration {
	pause := min(refusal.RetryAfter, quotaPauseMax)
	if pause <= 0 {
		return backoffTo(failures, refusedBackoffMax)
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
