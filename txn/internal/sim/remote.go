package sim

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/txn"
	"github.com/isotone/isotone/txn/internal/mutant"
	"github.com/isotone/isotone/txn/internal/volatile"
)

// lockTTL is short: the oracle's time moves by up to 12 ms at a time.
const lockTTL = 10 * time.Millisecond

// remote is a store as one client reaches it.
type remote struct {
	w      *world
	client int
	space  string
}

func (s *remote) request(isWrite bool, exec func(*volatile.Store) (any, error), name string, args ...any) *request {
	name = fmt.Sprintf("%s %s", s.space, fmt.Sprintf(name, args...))
	d := s.w.disks[s.space]
	return &request{client: s.client, name: name, isWrite: isWrite, disk: d, exec: func() (any, error) {
		if d.broken {
			return nil, errDisk
		}
		value, err := exec(d.server(s.w.diskRNG))
		if s.w.diskFaults.sync == 1 {
			d.syncAll()
		}
		return value, err
	}}
}

type rowAnswer struct {
	row    txn.Row
	points txn.Points
}

// describe prints an answer without revisions, which are random and decide nothing.
func describe(value any) string {
	switch v := value.(type) {
	case rowAnswer:
		return fmt.Sprintf("%s %v", describe(v.row), v.points)
	case txn.Row:
		return fmt.Sprintf("locked=%v version=%v %q newest=%v record=%v", len(v.Lock) > 0, v.Version.Commit, v.Version.Value, v.Newest, v.Record)
	case txn.Page:
		s := fmt.Sprintf("more=%v %v", v.More, v.Points)
		for _, e := range v.Entries {
			s += fmt.Sprintf("; %s %s", e.Key, describe(e.Row))
		}
		return s
	default:
		return fmt.Sprint(value)
	}
}

// Read implements txn.Store.
func (s *remote) Read(ctx context.Context, key []byte, at, start isotone.Timestamp64) (txn.Row, txn.Points, error) {
	v, err := s.w.call(ctx, s.request(false, func(store *volatile.Store) (any, error) {
		row, points, err := store.Read(context.Background(), key, at, start)
		return rowAnswer{row, points}, err
	}, "read %s %v %v", key, at, start))
	if err != nil {
		return txn.Row{}, txn.Points{}, err
	}
	a := v.(rowAnswer)
	if s.client%2 == 0 {
		return a.row, a.points, nil
	}
	// A store may read the points later.
	points, err := s.Points(ctx)
	return a.row, points, err
}

// scanRows is how many rows a scan returns.
const scanRows = 3

// Scan implements txn.Store. It reads each row at a moment of its own, as a store may.
func (s *remote) Scan(ctx context.Context, r txn.Range, at isotone.Timestamp64) (all txn.Page, err error) {
	rows := min(r.Limit, scanRows)
	r.Limit = 1
	for range rows {
		v, err := s.w.call(ctx, s.request(false, func(store *volatile.Store) (any, error) {
			return store.Scan(context.Background(), r, at)
		}, "scan %q %q %v", r.From, r.To, at))
		if err != nil {
			return txn.Page{}, err
		}
		page := v.(txn.Page)
		all.Entries = append(all.Entries, page.Entries...)
		all.More, all.Points = page.More, page.Points
		if !page.More {
			break
		}
		r.From = append(bytes.Clone(page.Entries[0].Key), 0)
	}
	return all, nil
}

// Write implements txn.Store.
func (s *remote) Write(ctx context.Context, key []byte, c txn.Change) (bool, error) {
	v, err := s.w.call(ctx, s.request(true, func(store *volatile.Store) (any, error) {
		done, err := store.Write(context.Background(), key, c)
		if errors.Is(err, isotone.ErrFenced) {
			s.w.result.Fenced++
		}
		return done, err
	}, "write %s lock=%v put=%v %q record=%v drop=%v,%v", key, len(c.Lock) > 0, c.Put.Commit, c.Put.Value, c.Record, c.DropVersions, c.DropRecords))
	if err != nil {
		return false, err
	}
	return v.(bool), nil
}

// Points implements txn.Store.
func (s *remote) Points(ctx context.Context) (txn.Points, error) {
	v, err := s.w.call(ctx, s.request(false, func(store *volatile.Store) (any, error) {
		return store.Points(context.Background())
	}, "points"))
	if err != nil {
		return txn.Points{}, err
	}
	return v.(txn.Points), nil
}

// Raise implements txn.Store.
func (s *remote) Raise(ctx context.Context, p txn.Points) error {
	_, err := s.w.call(ctx, s.request(true, func(store *volatile.Store) (any, error) {
		return nil, store.Raise(context.Background(), p)
	}, "raise %v", p))
	return err
}

// oracle is the cluster that issues timestamps.
type oracle struct {
	milli, counter uint64
	last           isotone.Timestamp64
	started        bool // after the set-up
	failing        int  // requests that fail before the next leader answers
}

var errNoLeader = errors.New("no leader")

// failOver has the next requests fail, and the next leader begin later.
func (o *oracle) failOver(rng *rand.Rand) {
	o.failing = 1 + rng.IntN(8)
	o.counter = 0
	o.milli += rng.Uint64N(40)
	if mutant.On(mutant.OracleGoesBack) {
		o.milli -= min(o.milli-900, 60)
	} else if o.milli <= o.last.Milli() {
		o.milli = o.last.Milli() + 1
	}
}

func (o *oracle) issue(rng *rand.Rand) (isotone.Timestamp64, error) {
	if o.failing > 0 {
		o.failing--
		return 0, errNoLeader
	}
	if mutant.On(mutant.OracleRepeats) && o.started && rng.IntN(10) == 0 {
		return o.last, nil
	}
	if o.milli > o.last.Milli() || mutant.On(mutant.OracleGoesBack) {
		o.counter++
		o.last = isotone.NewTimestamp64(o.milli, o.counter)
		return o.last, nil
	}
	o.last++
	return o.last, nil
}

// remoteOracle is the oracle as one client reaches it.
type remoteOracle struct {
	w      *world
	client int
}

// Timestamp64 implements txn.Oracle.
func (o *remoteOracle) Timestamp64(ctx context.Context) (isotone.Timestamp64, error) {
	v, err := o.w.call(ctx, &request{client: o.client, name: "timestamp", exec: func() (any, error) {
		return o.w.oracle.issue(o.w.rng)
	}})
	if err != nil {
		return 0, err
	}
	return v.(isotone.Timestamp64), nil
}

// clock returns the steady clock of a client, which runs as fast as the scheduler has it run.
func (w *world) clock(client int) func() time.Time {
	return func() time.Time {
		w.mu.Lock()
		defer w.mu.Unlock()
		return time.Unix(0, 0).Add(w.clocks[client])
	}
}

// sleeper returns the timer of a client, which ends when the scheduler has it end.
func (w *world) sleeper(client int) func(context.Context, time.Duration) error {
	return func(ctx context.Context, d time.Duration) error {
		_, err := w.call(ctx, &request{client: client, name: "sleep", isSleep: true})
		return err
	}
}
