package sim

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/txn"
	"github.com/isotone/isotone/txn/check"
	"github.com/isotone/isotone/txn/internal/mutant"
	"github.com/isotone/isotone/txn/internal/volatile"
)

// sealerClient is the client that raises the fences. It has no faults but those of its calls.
const sealerClient = 2000

// snapshotsMax bounds the frontiers that are read again.
const snapshotsMax = 8

// group is a group of writers, as a cluster keeps it. world.mu guards it.
type group struct {
	taken map[isotone.Timestamp64]int  // stamps that are not decided, and the clients that have them
	hole  map[isotone.Timestamp64]bool // stamps of those that cannot be asked any more, and doubts
	// snapshots are what was read at frontiers, to be read again.
	snapshots map[isotone.Timestamp64]string
}

func newGroup() group {
	return group{taken: map[isotone.Timestamp64]int{}, hole: map[isotone.Timestamp64]bool{}, snapshots: map[isotone.Timestamp64]string{}}
}

// frontier returns the frontier.
func (w *world) frontier() isotone.Timestamp64 {
	f := w.oracle.last
	for _, stamps := range []func(func(isotone.Timestamp64) bool){maps.Keys(w.group.taken), maps.Keys(w.group.hole)} {
		for stamp := range stamps {
			f = min(f, stamp-1)
		}
	}
	return f
}

// endSession has a client that is dead, stalled or cut off lose its session: its stamps are put in the hole. One that
// lives on may write late.
func (w *world) endSession() {
	if len(w.group.taken) == 0 || w.diskRNG.IntN(20) > 0 {
		return
	}
	stamps := slices.Sorted(maps.Keys(w.group.taken))
	client := w.group.taken[stamps[w.diskRNG.IntN(len(stamps))]]
	if !w.dead[client] && w.stalled[client] <= w.step && w.cut[client] <= w.step && client != finalClient {
		return
	}
	for stamp, of := range w.group.taken {
		if of == client {
			delete(w.group.taken, stamp)
			w.group.hole[stamp] = true
		}
	}
}

// startSealer starts the client that has the stores seal the hole, each time that there is one.
func (w *world) startSealer() {
	go func() {
		ctx := w.t.Context()
		for w.sealer(ctx) == nil {
		}
	}()
}

// sealer waits, and seals what of the hole is below the stamps of the living. It fails when the simulation is over.
func (w *world) sealer(ctx context.Context) error {
	if err := w.sleeper(sealerClient)(ctx, 0); err != nil {
		return err
	}
	w.mu.Lock()
	through := isotone.Timestamp64(0)
	lowest := w.oracle.last + 1
	for stamp := range w.group.taken {
		lowest = min(lowest, stamp)
	}
	for stamp := range w.group.hole {
		if stamp < lowest {
			through = max(through, stamp)
		}
	}
	w.mu.Unlock()
	if through == 0 {
		return nil
	}
	stores := map[string]txn.Store{}
	for _, space := range spaces {
		stores[space] = &remote{w: w, client: sealerClient, space: space}
	}
	fence, err := txn.NewFence(stores)
	if err != nil {
		return err
	}
	if err := fence.Seal(ctx, through.Timestamp()); err != nil {
		if errors.Is(err, errClosed) {
			return err
		}
		return nil // the next time
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	maps.DeleteFunc(w.group.hole, func(stamp isotone.Timestamp64, _ bool) bool { return stamp <= through })
	return nil
}

// Seal implements txn.Fenced.
func (s *remote) Seal(ctx context.Context, through isotone.Timestamp64) error {
	_, err := s.w.call(ctx, s.request(true, func(store *volatile.Store) (any, error) {
		if mutant.On(mutant.FenceIgnored) {
			return nil, nil
		}
		return nil, store.Seal(context.Background(), through)
	}, "seal %v", through))
	return err
}

// takeStamp is txn.Options.Frontier of a client. A stamp whose answer is lost is given up, as the client's next request says.
func (w *world) takeStamp(client int) func(context.Context) (txn.Stamp, error) {
	return txn.Frontier(func(ctx context.Context) (*stamp, error) {
		s := &stamp{w: w}
		_, err := w.call(ctx, &request{client: client, name: "take", exec: func() (v any, err error) {
			if s.at, err = w.oracle.issue(w.rng); err == nil {
				w.group.taken[s.at] = client
			}
			return nil, err
		}})
		if err != nil {
			s.Done()
		}
		return s, err
	})
}

// stamp is the commit timestamp of a transaction.
type stamp struct {
	w  *world
	at isotone.Timestamp64
}

// Stamp implements txn.Stamp.
func (s *stamp) Stamp() isotone.Timestamp { return s.at.Timestamp() }

// Done implements txn.Stamp. What a session has lost, it cannot settle any more.
func (s *stamp) Done() {
	s.w.mu.Lock()
	defer s.w.mu.Unlock()
	delete(s.w.group.taken, s.at)
}

// Unknown implements txn.Stamp.
func (s *stamp) Unknown() {
	s.w.mu.Lock()
	defer s.w.mu.Unlock()
	if _, ok := s.w.group.taken[s.at]; ok {
		delete(s.w.group.taken, s.at)
		s.w.group.hole[s.at] = true
	}
}

// atFrontier reads everything at the present frontier, or at one that was read before: that must give the same.
func (c *client) atFrontier(ctx context.Context) {
	w := c.w
	w.mu.Lock()
	if w.closing {
		w.mu.Unlock()
		return
	}
	at := w.frontier()
	if old := slices.Sorted(maps.Keys(w.group.snapshots)); len(old) > 0 && c.rng.IntN(2) == 0 {
		at = old[c.rng.IntN(len(old))]
	}
	w.mu.Unlock()
	tx, err := c.db.AtFrontier(at.Timestamp())
	if err != nil {
		w.report(err)
		return
	}
	e := &entry{txn: check.Txn{Name: fmt.Sprintf("frontier %v of client %d", at, c.id), Status: check.Committed}}
	if err := c.scan(ctx, tx, e); err == nil && c.rng.IntN(2) == 0 {
		err = c.audit(ctx, tx)
		if err != nil {
			return
		}
	} else if err != nil {
		if errors.Is(err, txn.ErrLocked) {
			w.report(fmt.Errorf("a reader at the frontier has waited: %w", err))
		}
		return
	}
	w.mu.Lock()
	if w.dead[c.id] || w.closing {
		w.mu.Unlock()
		return
	}
	w.result.AtFrontier++
	got := fmt.Sprint(e.txn.Ops)
	before, again := w.group.snapshots[at]
	if again {
		w.result.Again++
	} else if len(w.group.snapshots) < snapshotsMax {
		w.group.snapshots[at] = got
	}
	w.entries = append(w.entries, e)
	w.mu.Unlock()
	if again && before != got {
		w.report(fmt.Errorf("the snapshot at the frontier %v has changed from\n%s\nto\n%s", at, before, got))
	}
}
