package txn_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/txn"
	"github.com/isotone/isotone/txn/check"
	"github.com/isotone/isotone/txn/memory"
)

// clocked issues timestamps whose milliseconds pass.
type clocked struct {
	mu   sync.Mutex
	last isotone.Timestamp64
}

func (o *clocked) Timestamp64(context.Context) (isotone.Timestamp64, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.last = max(o.last+1, isotone.NewTimestamp64(uint64(time.Now().UnixMilli()), 0))
	return o.last, nil
}

// TestDB_KeepsSnapshotIsolationUnderLoad runs goroutines with real timers, in several DBs, while
// garbage is collected, and checks what they saw. The simulation covers far more orders; this is for
// the race detector, and for what a simulation replaces.
func TestDB_KeepsSnapshotIsolationUnderLoad(t *testing.T) {
	const clients, each = 6, 60
	oracle := &clocked{}
	stores := map[string]txn.Store{"a": memory.New(), "b": memory.New()}
	var step atomic.Int64
	histories := make([][]check.Txn, clients)
	var wg sync.WaitGroup
	for i := range clients {
		db, err := txn.New(oracle, txn.Options{Stores: stores, BackgroundMax: i - 1, RunAttempts: 1})
		if err != nil {
			t.Fatal(err)
		}
		defer db.Close()
		wg.Go(func() {
			rng := rand.New(rand.NewPCG(1, uint64(i)))
			for n := range each {
				h := check.Txn{Name: fmt.Sprintf("T%d.%d", i, n), Begin: step.Add(1)}
				err := db.Run(t.Context(), func(tx *txn.Tx) error {
					return appendSome(t.Context(), tx, rng, &h, int64(1000*i+n+1))
				})
				switch {
				case err == nil:
					h.Status, h.End = check.Committed, step.Add(1)
				case errors.Is(err, txn.ErrUnknown):
					h.Status = check.Unknown
				case txn.IsRetryable(err):
					h.Status = check.Aborted
				default:
					t.Errorf("%s: %v", h.Name, err)
					return
				}
				histories[i] = append(histories[i], h)
				if n%20 == 10 {
					if _, err := db.Collect(t.Context(), 5*time.Millisecond); err != nil {
						t.Errorf("collect: %v", err)
					}
				}
			}
		})
	}
	wg.Wait()
	var all []check.Txn
	committed := 0
	for _, h := range histories {
		for _, txn := range h {
			if txn.Status == check.Committed {
				committed++
			}
		}
		all = append(all, h...)
	}
	if err := check.Check(all); err != nil {
		t.Error(err)
	}
	if committed < clients*each/20 {
		t.Errorf("only %d of %d transactions committed", committed, clients*each)
	}
}

// appendSome reads lists, and appends to some of them.
func appendSome(ctx context.Context, tx *txn.Tx, rng *rand.Rand, h *check.Txn, value int64) error {
	for range 1 + rng.IntN(3) {
		space, key := []string{"a", "b"}[rng.IntN(2)], fmt.Sprint("l", rng.IntN(4))
		v, _, err := tx.Get(ctx, space, []byte(key))
		if err != nil {
			return err
		}
		op := check.Op{Kind: check.List, Key: space + "/" + key}
		for _, field := range strings.Fields(string(v)) {
			n, err := strconv.ParseInt(field, 10, 64)
			if err != nil {
				return err
			}
			op.List = append(op.List, n)
		}
		h.Ops = append(h.Ops, op)
		if rng.IntN(3) == 0 || strings.Contains(string(v), fmt.Sprintf("%d ", value)) {
			continue
		}
		h.Ops = append(h.Ops, check.Op{Kind: check.Append, Key: op.Key, Value: value})
		if err := tx.Set(space, []byte(key), fmt.Appendf(v, "%d ", value)); err != nil {
			return err
		}
	}
	return nil
}
