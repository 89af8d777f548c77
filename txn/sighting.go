package txn

import (
	"sync"
	"time"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/txn/internal/mutant"
)

// sightingsMax bounds the transactions of others that a DB remembers. It is above the rows of a page, so
// that a scan which meets dead locks only waits for all of them at once.
const sightingsMax = 4096

// sightings remember since when the locks of other transactions have shown no sign of life, by this
// process's steady clock. The oracle's time may stand still, for instance while it is ahead of the clocks
// after a restore; without this, the locks of a client that died would last as long.
type sightings struct {
	mu sync.Mutex
	of map[isotone.Timestamp64]sighting // by the start of the transaction
}

// sighting is what is remembered of one transaction.
type sighting struct {
	expires uint64    // the largest that was seen; it grows with every renewal
	since   time.Time // when that was seen first
	last    time.Time // when the transaction was met last
}

// areUnchanged takes note of a lock with that expiry. It reports whether the transaction has shown no sign
// of life for the TTL of its locks. asked is a time before the lock was read, now one after that.
func (s *sightings) areUnchanged(l *lock, expires uint64, asked, now time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	seen, known := s.of[l.start]
	if !known && len(s.of) >= sightingsMax && !mutant.On(mutant.SightingsGrow) {
		s.forget()
	}
	if !known || expires > seen.expires && !mutant.On(mutant.RenewalUnseen) {
		seen.expires, seen.since = expires, now
	}
	seen.last = now
	s.of[l.start] = seen
	return asked.Sub(seen.since) > l.ttl && !mutant.On(mutant.HoldsForever)
}

// forget removes the transaction that was met least recently.
func (s *sightings) forget() {
	var oldest isotone.Timestamp64
	for start, seen := range s.of {
		if oldest == 0 || seen.last.Before(s.of[oldest].last) {
			oldest = start
		}
	}
	delete(s.of, oldest)
}
