package sim

import (
	"math/rand/v2"
	"time"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/core/replica"
)

// The floors that clients carry (I13). They have a source of randomness of their own, so that
// runs without strangers are the same with and without floors.

const (
	// floorShare is the share of requests that carry their client's floor.
	floorShare = 0.3
	// strangerRuns is one in how many runs has clients with floors of another cluster, as if
	// this one had been set back.
	strangerRuns = 8
	// strangerShare is the share of their requests with such floors.
	strangerShare = 0.02
)

// floors draws the floors of clients.
type floors struct {
	rng       *rand.Rand
	strangers bool
}

func newFloors(seed uint64) floors {
	f := floors{rng: rand.New(rand.NewPCG(seed, 0xf1005))}
	f.strangers = f.rng.IntN(strangerRuns) == 0
	return f
}

// drawFloor draws the floor of a client's next request, zero for none.
func (w *world) drawFloor(c *client) (floor isotone.Timestamp, strange bool) {
	f := &w.floors
	switch {
	case f.strangers && f.rng.Float64() < strangerShare:
		return w.strangeFloor(), true
	case f.rng.Float64() < floorShare:
		return c.seen, false
	}
	return isotone.Timestamp{}, false
}

// raises reports whether the client may move time ahead by its floor: most strangers may, nobody else.
func (k *call) raises() bool { return k.strange && k.op%4 != 0 }

// checkRegressed checks an error: a cluster that was never restored refuses no floor that it gave itself, though its
// clients may not move time.
func (w *world) checkRegressed(k *call, err *isotone.Error) {
	if err != nil && err.Code == isotone.CodeRegressed && !k.strange && w.loss.restored == 0 {
		w.fail("I13: the floor of a client of this cluster is refused: %v", err)
	}
}

// strangeFloor draws a floor about as late as the ceiling, up to twice as far ahead of it as the
// guard permits.
func (w *world) strangeFloor() isotone.Timestamp {
	f, lead := &w.floors, uint64(w.lead())
	t := isotone.Timestamp{Time: w.ceiling + f.rng.Uint64N(2*lead), Index: f.rng.Uint64()}
	t.Time -= min(t.Time, lead)
	if f.rng.IntN(2) == 0 {
		t.Time += f.rng.Uint64N(2 * uint64(replica.ClientFloorAheadMax))
	}
	return t
}

// checkClientFloor checks an answer to a call and notes it as seen.
func (w *world) checkClientFloor(k *call, r isotone.Range) {
	if !k.floor.Before(r.First) {
		w.fail("I13: %v was issued to a client whose floor was %v", r.First, k.floor)
	}
	if c := k.client; c.seen.Before(r.Last()) {
		c.seen = r.Last()
	}
}

// floorLead is how much further ahead the ceiling may be as clients raise the floor.
func (w *world) floorLead() time.Duration {
	if !w.floors.strangers {
		return 0
	}
	return replica.ClientFloorAheadMax + 2
}
