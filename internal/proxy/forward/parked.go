package forward

import (
	"slices"
	"time"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/front"
)

// Parking of batches whose clients may not move time, and whose result was not above the floor.

const (
	// parkMax bounds how long a batch is requested again, and floorPause is the shortest pause before it is.
	parkMax    = time.Second
	floorPause = 10 * time.Millisecond
)

// parked is a batch that is to be requested again when it is due.
type parked struct {
	batch *front.Batch
	due   time.Time
}

// park parks a batch whose result is not above its floor, and reports whether it did. If that would take too long, the batch gets an
// error instead.
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

// unpark makes the batches that are due pending again, and sets the timer for the next ones.
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
