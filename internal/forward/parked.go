package forward

import (
	"slices"
	"time"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/front"
)

// Batches of clients that may not move time, and that were answered, but not above their floors.

const (
	// parkMax bounds how long a batch is asked for again, and floorPause is the least pause between.
	parkMax    = time.Second
	floorPause = 10 * time.Millisecond
)

// parked is a batch that is to be asked for again.
type parked struct {
	batch *front.Batch
	due   time.Time
}

// park keeps a batch that was answered, but not above its floor, to be asked for again. If that takes too long, it gets an error.
func (u *Upstream) park(b *front.Batch) bool {
	if b.Raise || len(b.Ranges) == 0 || b.Floor == (isotone.Timestamp{}) || b.Floor.Before(b.Ranges[0].First) {
		return false
	}
	now, first := time.Now(), b.Ranges[0].First
	began, again := u.began[b]
	if !again {
		began = now
	}
	behind := max(b.Floor.Time, first.Time) - first.Time
	if left := parkMax - now.Sub(began); left <= 0 || behind >= uint64(left) || len(u.parked) >= flooredMax {
		b.Err = isotone.Errorf(isotone.CodeRegressed, "the cluster is at %d and the floor at %d: to move time ahead of the clock takes the role floors", first.Time, b.Floor.Time)
		return false
	}
	u.began[b] = began
	u.parked = append(u.parked, parked{b, now.Add(time.Duration(behind) + floorPause)})
	return true
}

// unpark has batches asked for again whose floors may have been passed, and the loop woken for the next ones.
func (u *Upstream) unpark() {
	if len(u.parked) == 0 {
		return
	}
	now := time.Now()
	next := now.Add(parkMax)
	u.parked = slices.DeleteFunc(u.parked, func(p parked) bool {
		if p.due.After(now) {
			if p.due.Before(next) {
				next = p.due
			}
			return false
		}
		u.pending = append(u.pending, p.batch)
		return true
	})
	if u.due == nil {
		u.due = time.AfterFunc(next.Sub(now), u.wake)
	} else {
		u.due.Reset(next.Sub(now))
	}
}
