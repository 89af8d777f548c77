package node

import (
	"time"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/auth/access"
	"github.com/isotone/isotone/internal/core/replica"
	"github.com/isotone/isotone/internal/core/timeline"
	"github.com/isotone/isotone/internal/front"
)

// quotasKept is how many quotas are kept before those are dropped of which nothing is used.
const quotasKept = 1024

// quotas is what was used of the quotas of the timelines that this process owns. A new owner begins with full ones. It belongs to the core loop's
// goroutine.
type quotas struct {
	used map[string]*quotaUse
	// sweep is how many there are when they are looked through next.
	sweep int
}

type quotaUse struct{ requests, timestamps access.Bucket }

// refuse takes what a batch asks for from the quota of its timeline, or returns why that is used up. Another node than the owner takes nothing: it
// answers with the owner's address.
func (q *quotas) refuse(r *replica.Replica, b *front.Batch, now time.Duration) *isotone.Error {
	have, _ := r.Timelines().Timeline(b.Timeline)
	if have.Quota == (timeline.Quota{}) {
		return nil
	}
	self := r.Hello()
	if g, _ := r.Timelines().Group(have.Group); g.Owner != self.NodeID || g.Session != self.Session {
		return nil
	}
	u := q.use(b.Timeline, now)
	total := uint64(0)
	for _, n := range b.Counts {
		total += n
	}
	if wait := u.requests.Take(now, have.Quota.Requests, uint64(len(b.Counts))); wait > 0 {
		return overQuota(b.Timeline, "requests", have.Quota.Requests, wait)
	}
	if wait := u.timestamps.Take(now, have.Quota.Timestamps, total); wait > 0 {
		return overQuota(b.Timeline, "timestamps", have.Quota.Timestamps, wait)
	}
	return nil
}

func overQuota(name, what string, rate uint64, wait time.Duration) *isotone.Error {
	wait = max(wait, time.Millisecond)
	e := isotone.Errorf(isotone.CodeQuotaExceeded, "the timeline %q has a quota of %d %s a second; retry after %d ms", name, rate, what, (wait+time.Millisecond-1)/time.Millisecond)
	e.RetryAfter = wait
	return e
}

// use returns what was used of the quota of a timeline.
func (q *quotas) use(name string, now time.Duration) *quotaUse {
	u := q.used[name]
	if u != nil {
		return u
	}
	if len(q.used) >= max(q.sweep, quotasKept) {
		for other, u := range q.used {
			if u.requests.IsFull(now) && u.timestamps.IsFull(now) {
				delete(q.used, other)
			}
		}
		q.sweep = 2 * len(q.used)
	}
	if q.used == nil {
		q.used = map[string]*quotaUse{}
	}
	u = &quotaUse{}
	q.used[name] = u
	return u
}
