package storetest

import (
	"context"
	"errors"
	"sync"
	"testing"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/txn"
	"github.com/isotone/isotone/txn/internal/volatile"
)

// double is a store that keeps the contract, or breaks it in one way.
type double struct {
	*volatile.Store
	answersEarly bool // it answers writes before they are synced
	showsEarly   bool // it reads what is not synced
	goesOn       bool // after a failed sync it takes everything for synced
	tells        bool // it tells of points what is not synced

	mu           sync.Mutex
	held, broken bool
}

var errSync = errors.New("input/output error")

// sync returns when everything that was written so far is durable.
func (d *double) sync(ctx context.Context) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.broken && !d.goesOn {
		return errSync
	}
	if d.held {
		d.mu.Unlock()
		defer d.mu.Lock()
		<-ctx.Done()
		return ctx.Err()
	}
	if !d.broken {
		d.Sync(d.Written())
	}
	return nil
}

func (d *double) Write(ctx context.Context, key []byte, c txn.Change) (bool, error) {
	done, err := d.Store.Write(ctx, key, c)
	if err == nil && !d.answersEarly {
		err = d.sync(ctx)
	}
	return done && err == nil, err
}

func (d *double) Raise(ctx context.Context, p txn.Points) error {
	err := d.Store.Raise(ctx, p)
	if err == nil && !d.answersEarly {
		err = d.sync(ctx)
	}
	return err
}

func (d *double) Read(ctx context.Context, key []byte, at, start isotone.Timestamp64) (txn.Row, txn.Points, error) {
	row, points, err := d.Store.Read(ctx, key, at, start)
	if err == nil && !d.showsEarly {
		err = d.sync(ctx)
	}
	return row, points, err
}

func (d *double) Scan(ctx context.Context, r txn.Range, at isotone.Timestamp64) (txn.Page, error) {
	page, err := d.Store.Scan(ctx, r, at)
	if err == nil && !d.showsEarly {
		err = d.sync(ctx)
	}
	return page, err
}

func (d *double) Points(ctx context.Context) (txn.Points, error) {
	points, err := d.Store.Points(ctx)
	if err == nil && !d.tells {
		err = d.sync(ctx)
	}
	return points, err
}

func (d *double) faults() Faults {
	set := func(flag *bool) func() {
		return func() {
			d.mu.Lock()
			defer d.mu.Unlock()
			*flag = true
		}
	}
	return Faults{Store: d, Hold: set(&d.held), Break: set(&d.broken), FailOver: func() txn.Store {
		d.Restart(d.Synced())
		return &double{Store: d.Store}
	}}
}

func TestRunDurable_AcceptsAStoreThatKeepsTheContract(t *testing.T) {
	RunDurable(t, func(*testing.T) Faults { return (&double{Store: volatile.New()}).faults() })
	t.Run("Base", func(t *testing.T) { Run(t, func(*testing.T) txn.Store { return &double{Store: volatile.New()} }) })
}

func TestRunDurable_NoticesStoresThatBreakIt(t *testing.T) {
	answers, shown, after := durableChecks[0].name, durableChecks[1].name, durableChecks[2].name
	for name, test := range map[string]struct {
		double  func() *double
		noticed []string // by these checks, and by no others
	}{
		"answers writes before they are durable": {func() *double { return &double{Store: volatile.New(), answersEarly: true} }, []string{shown, after}},
		"answers only, and never syncs": {func() *double {
			return &double{Store: volatile.New(), answersEarly: true, showsEarly: true, tells: true}
		}, []string{answers, shown, after}},
		"shows writes before they are durable": {func() *double { return &double{Store: volatile.New(), showsEarly: true} }, []string{shown, after}},
		"shows points before they are durable": {func() *double { return &double{Store: volatile.New(), tells: true} }, []string{shown, after}},
		"goes on after a failed sync":          {func() *double { return &double{Store: volatile.New(), goesOn: true} }, []string{after}},
	} {
		t.Run(name, func(t *testing.T) {
			noticed := map[string]bool{}
			for _, check := range test.noticed {
				noticed[check] = true
			}
			for _, check := range durableChecks {
				faults := test.double().faults()
				err := check.run(t.Context(), &faults)
				if (err != nil) != noticed[check.name] {
					t.Errorf("%s: %v", check.name, err)
				}
			}
		})
	}
}

func TestRunDurable_NoticesALaggingReplica(t *testing.T) {
	d := &double{Store: volatile.New()}
	faults := d.faults()
	empty := volatile.New()
	faults.FailOver = func() txn.Store { return empty }
	if err := durableChecks[0].run(t.Context(), &faults); err == nil {
		t.Error("a replica that has nothing was taken for the store")
	}
}
