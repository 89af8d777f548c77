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

// parking has the batches that are to be requested again when they are due: at most flooredMax of the default order, and as many of
// all timelines.
type parking struct {
	main, lines []parked
	due         *time.Timer // wakes the loop; nil before there was one
}

type parked struct {
	order *order
	batch *front.Batch
	due   time.Time
}

// park parks a batch of o whose result is not above its floor, and reports whether it did. If that would take too long, the batch gets an
// error instead.
func (u *Upstream) park(o *order, b *front.Batch) bool {
	if b.Raise || len(b.Ranges) == 0 || b.Floor == (isotone.Timestamp{}) || b.Floor.Before(b.Ranges[0].First) {
		return false
	}
	now, first := time.Now(), b.Ranges[0].First
	began, again := u.began[b]
	if !again {
		began = now
	}
	behind := max(b.Floor.Time, first.Time) - first.Time
	list := u.parked.of(o == &u.main)
	if left := parkMax - now.Sub(began); left <= 0 || behind >= uint64(left) || len(*list) >= flooredMax {
		b.Err = isotone.Errorf(isotone.CodeRegressed, "the cluster is at %d and the floor at %d: to move time ahead of the clock takes the role floors", first.Time, b.Floor.Time)
		return false
	}
	u.began[b] = began
	o.parked++
	*list = append(*list, parked{o, b, now.Add(time.Duration(behind) + floorPause)})
	return true
}

// of returns the list of the default order, or of timelines.
func (p *parking) of(isMain bool) *[]parked {
	if isMain {
		return &p.main
	}
	return &p.lines
}

// unpark makes the batches that are due pending again, and sets the timer for the next ones.
func (u *Upstream) unpark() {
	if len(u.parked.main)+len(u.parked.lines) == 0 {
		return
	}
	now := time.Now()
	next := now.Add(parkMax)
	isOver := func(p parked) bool {
		if p.due.After(now) {
			if p.due.Before(next) {
				next = p.due
			}
			return false
		}
		p.order.parked--
		p.batch.Taken = now
		p.order.pending = append(p.order.pending, p.batch)
		u.goOn(p.order)
		return true
	}
	u.parked.main = slices.DeleteFunc(u.parked.main, isOver)
	u.parked.lines = slices.DeleteFunc(u.parked.lines, isOver)
	if u.parked.due == nil {
		u.parked.due = time.AfterFunc(next.Sub(now), u.wake)
	} else {
		u.parked.due.Reset(next.Sub(now))
	}
}

// end takes all batches.
func (p *parking) end() (all []*front.Batch) {
	if p.due != nil {
		p.due.Stop()
	}
	for _, one := range append(p.main, p.lines...) {
		all = append(all, one.batch)
	}
	p.main, p.lines = nil, nil
	return all
}
