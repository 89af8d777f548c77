package txn

import (
	"testing"
	"time"

	"github.com/isotone/isotone"
)

// sightingsAfter returns how many transactions are remembered when more than the limit were met, and whether
// one that was met all the time is among them.
func sightingsAfter(n int) (count int, kept bool) {
	s := sightings{of: map[isotone.Timestamp64]sighting{}}
	now := time.Unix(0, 0)
	watched := &lock{start: 1, ttl: time.Second}
	for i := range n {
		now = now.Add(time.Millisecond)
		s.areUnchanged(watched, 5, now, now)
		s.areUnchanged(&lock{start: isotone.Timestamp64(i + 2), ttl: time.Second}, 5, now, now)
	}
	return len(s.of), s.areUnchanged(watched, 5, now, now)
}

func TestSightings_AreBounded(t *testing.T) {
	if n, kept := sightingsAfter(sightingsMax + 1000); n != sightingsMax || !kept {
		t.Errorf("%d transactions are remembered, want %d; kept the one that is watched: %v", n, sightingsMax, kept)
	}
}

func TestSightings_MeasureFromTheFirstToBeforeTheLastRead(t *testing.T) {
	s := sightings{of: map[isotone.Timestamp64]sighting{}}
	l := &lock{start: 1, ttl: time.Second}
	at := func(d time.Duration) time.Time { return time.Unix(0, 0).Add(d) }
	s.areUnchanged(l, 5, at(0), at(time.Minute)) // a slow read
	if s.areUnchanged(l, 5, at(time.Minute+time.Second), at(time.Hour)) {
		t.Error("the duration of reads counts")
	}
	if !s.areUnchanged(l, 5, at(time.Minute+time.Second+1), at(time.Hour)) {
		t.Error("the TTL has passed, and does not count")
	}
}
