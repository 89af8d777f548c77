// Package clientgo lets programs that use TiKV's Go client take their timestamps from Isotone instead
// of PD: [Oracle] implements the interface oracle.Oracle of github.com/tikv/client-go/v2.
//
//	c, err := client.New(ctx, "10.0.0.1:8080", "10.0.0.2:8080", "10.0.0.3:8080")
//	...
//	o, err := clientgo.NewOracle(ctx, c, clientgo.Options{})
//	...
//	previous := store.GetOracle()
//	store.SetOracle(o) // before the first transaction
//	previous.Close()
//
// The store closes the oracle, and the program closes the client after that. TiKV still needs PD for
// everything else, such as where regions are. All programs of one TiKV cluster must take their
// timestamps from the same oracle: those of PD and those of Isotone have no order between them.
package clientgo

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tikv/client-go/v2/oracle"

	"github.com/isotone/isotone"
)

const (
	// UpdateIntervalDefault is the default of Options.UpdateInterval, as client-go has it.
	UpdateIntervalDefault = 2 * time.Second
	// futuresMax bounds the futures that are not resolved yet. Further calls of GetTimestampAsync
	// return futures that fail.
	futuresMax = 1 << 16
	// refreshTimeout bounds a request for the low resolution timestamp.
	refreshTimeout = 5 * time.Second
)

// ErrClosed is the error of calls that an oracle has not answered when it is closed.
var ErrClosed = errors.New("clientgo: the oracle is closed")

// ErrFuture is the error of a read timestamp that was not issued yet.
var ErrFuture = errors.New("clientgo: the read timestamp is in the future")

// Source issues timestamps. [client.Client] of github.com/isotone/isotone/client is one. It must be
// safe for concurrent use, and calls that wait at the same time should share requests.
type Source interface {
	// Timestamp64 returns a timestamp larger than all that anyone had received when the call began.
	Timestamp64(ctx context.Context) (isotone.Timestamp64, error)
}

// Options configures an [Oracle]. The zero value has the defaults.
type Options struct {
	// UpdateInterval is the age at which the low resolution timestamp is replaced; 0 means
	// UpdateIntervalDefault.
	UpdateInterval time.Duration
}

// Oracle takes timestamps from a [Source]. Make it with [NewOracle], and end it with Close. All methods
// are safe for concurrent use.
//
// There is one order for all transaction scopes, so the scope in an oracle.Option is ignored, and the
// option may be nil. Timestamps in it are real: physical is within the cluster's bounds of the wall
// clock; see isotone.Timestamp64.
type Oracle struct {
	source Source
	ctx    context.Context // done when the oracle is closed
	cancel context.CancelCauseFunc
	work   sync.WaitGroup
	places chan struct{} // one for each unresolved future
	mu     sync.Mutex    // guards closed, so that work does not grow after Close
	closed bool

	last     atomic.Pointer[received]
	interval atomic.Int64  // of updates, in nanoseconds
	changed  chan struct{} // interval has changed
}

// received is a timestamp and when it came, by the steady clock of this process.
type received struct {
	ts uint64
	at time.Time
}

var _ oracle.Oracle = (*Oracle)(nil)

// NewOracle returns an oracle once it has its first timestamp. After it returns, ctx has no effect.
func NewOracle(ctx context.Context, s Source, o Options) (*Oracle, error) {
	if o.UpdateInterval < 0 {
		return nil, intervalError(o.UpdateInterval)
	}
	if o.UpdateInterval == 0 {
		o.UpdateInterval = UpdateIntervalDefault
	}
	k := &Oracle{source: s, places: make(chan struct{}, futuresMax), changed: make(chan struct{}, 1)}
	k.ctx, k.cancel = context.WithCancelCause(context.Background())
	k.interval.Store(int64(o.UpdateInterval))
	if _, err := k.fetch(ctx); err != nil {
		k.cancel(ErrClosed)
		return nil, fmt.Errorf("clientgo: first timestamp: %w", err)
	}
	k.work.Go(k.update)
	return k, nil
}

// Close fails the futures that are not resolved with [ErrClosed], and returns when all goroutines of the
// oracle have ended. It does not close the source.
func (k *Oracle) Close() {
	k.mu.Lock()
	k.closed = true
	k.mu.Unlock()
	k.cancel(ErrClosed)
	k.work.Wait()
}

// fetch returns a new timestamp, and remembers it.
func (k *Oracle) fetch(ctx context.Context) (uint64, error) {
	got, err := k.source.Timestamp64(ctx)
	if err != nil {
		return 0, err
	}
	now := &received{uint64(got), time.Now()}
	for {
		last := k.last.Load()
		if last != nil && last.ts >= now.ts || k.last.CompareAndSwap(last, now) {
			return now.ts, nil
		}
	}
}

// update replaces the low resolution timestamp when it is old, until the oracle is closed.
func (k *Oracle) update() {
	for {
		wait := time.NewTimer(time.Duration(k.interval.Load()))
		select {
		case <-k.changed:
			wait.Stop()
			continue
		case <-k.ctx.Done():
			wait.Stop()
			return
		case <-wait.C:
		}
		ctx, cancel := context.WithTimeout(k.ctx, refreshTimeout)
		_, _ = k.fetch(ctx) // callers have the old timestamp until this succeeds
		cancel()
	}
}

// GetTimestamp returns a timestamp larger than all that anyone had received when the call began.
func (k *Oracle) GetTimestamp(ctx context.Context, _ *oracle.Option) (uint64, error) {
	return k.fetch(ctx)
}

// GetTimestampAsync requests a timestamp at once, and returns a future of it.
func (k *Oracle) GetTimestampAsync(ctx context.Context, _ *oracle.Option) oracle.Future {
	f := &future{done: make(chan struct{})}
	select {
	case k.places <- struct{}{}:
	default:
		return resolved(0, isotone.Errorf(isotone.CodeOverloaded, "%d timestamps are waited for", futuresMax))
	}
	if !k.goIfOpen(func() {
		defer close(f.done)
		defer func() { <-k.places }()
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		defer context.AfterFunc(k.ctx, cancel)()
		f.ts, f.err = k.fetch(ctx)
		if f.err != nil && k.ctx.Err() != nil {
			f.err = ErrClosed
		}
	}) {
		<-k.places
		return resolved(0, ErrClosed)
	}
	return f
}

func (k *Oracle) goIfOpen(f func()) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	if !k.closed {
		k.work.Go(f)
	}
	return !k.closed
}

// future is a timestamp that is waited for.
type future struct {
	done chan struct{}
	ts   uint64
	err  error
}

func resolved(ts uint64, err error) *future {
	f := &future{done: make(chan struct{}), ts: ts, err: err}
	close(f.done)
	return f
}

// Wait returns the timestamp. It may be called several times.
func (f *future) Wait() (uint64, error) {
	<-f.done
	return f.ts, f.err
}

// GetLowResolutionTimestamp returns the latest timestamp that the oracle has received, without a
// request. It is at most about the update interval old while the cluster answers.
func (k *Oracle) GetLowResolutionTimestamp(context.Context, *oracle.Option) (uint64, error) {
	return k.last.Load().ts, nil
}

// GetLowResolutionTimestampAsync returns a resolved future of GetLowResolutionTimestamp.
func (k *Oracle) GetLowResolutionTimestampAsync(context.Context, *oracle.Option) oracle.Future {
	return resolved(k.last.Load().ts, nil)
}

// SetLowResolutionTimestampUpdateInterval sets the update interval, which begins anew.
func (k *Oracle) SetLowResolutionTimestampUpdateInterval(d time.Duration) error {
	if d <= 0 {
		return intervalError(d)
	}
	k.interval.Store(int64(d))
	select {
	case k.changed <- struct{}{}:
	default: // the update will find it
	}
	return nil
}

func intervalError(d time.Duration) error {
	return isotone.Errorf(isotone.CodeInvalidArgument, "update interval %v: want more than 0", d)
}

// GetStaleTimestamp returns an estimate of the timestamp prevSecond seconds ago, without a request: the
// latest one that was received, moved by the steady clock. Validate it before reading with it.
func (k *Oracle) GetStaleTimestamp(_ context.Context, _ string, prevSecond uint64) (uint64, error) {
	last := k.last.Load()
	now := oracle.ExtractPhysical(last.ts) + time.Since(last.at).Milliseconds()
	if prevSecond >= uint64(now/1000) {
		return 0, isotone.Errorf(isotone.CodeInvalidArgument, "%d seconds ago was before 1970", prevSecond)
	}
	return oracle.ComposeTS(now-int64(prevSecond)*1000, 0), nil
}

// IsExpired reports whether the lock of a transaction that began at lockTS has outlived its TTL, in
// milliseconds, according to the low resolution timestamp. So it may be late to say so.
func (k *Oracle) IsExpired(lockTS, ttl uint64, option *oracle.Option) bool {
	return k.UntilExpired(lockTS, ttl, option) <= 0
}

// UntilExpired returns after how many milliseconds IsExpired holds; 0 or less if it does.
func (k *Oracle) UntilExpired(lockTS, ttl uint64, _ *oracle.Option) int64 {
	return oracle.ExtractPhysical(lockTS) + int64(min(ttl, math.MaxInt64>>1)) - oracle.ExtractPhysical(k.last.Load().ts)
}

// GetAllTSOKeyspaceGroupMinTS returns a timestamp from the only order that there is.
func (k *Oracle) GetAllTSOKeyspaceGroupMinTS(ctx context.Context) (uint64, error) {
	return k.fetch(ctx)
}

// ValidateSnapshotReadTS returns nil if readTS was issued, or an error that matches [ErrFuture]. It asks
// the cluster only if readTS is above the low resolution timestamp.
func (k *Oracle) ValidateSnapshotReadTS(ctx context.Context, readTS uint64, _ *oracle.Option) error {
	if readTS <= k.last.Load().ts {
		return nil
	}
	now, err := k.fetch(ctx)
	if err != nil {
		return fmt.Errorf("clientgo: validate a read timestamp: %w", err)
	}
	if readTS > now {
		return fmt.Errorf("%w: %d, and the latest is %d", ErrFuture, readTS, now)
	}
	return nil
}

// ValidateReadTS is ValidateSnapshotReadTS under the name that later versions of client-go have for it.
// They read the latest version with math.MaxUint64, which is valid but for a stale read.
func (k *Oracle) ValidateReadTS(ctx context.Context, readTS uint64, isStaleRead bool, option *oracle.Option) error {
	if readTS == math.MaxUint64 && !isStaleRead {
		return nil
	}
	return k.ValidateSnapshotReadTS(ctx, readTS, option)
}

// GetExternalTimestamp always fails: PD keeps this number for all clients of its cluster, and Isotone
// has no such place. The error matches [errors.ErrUnsupported].
func (k *Oracle) GetExternalTimestamp(context.Context) (uint64, error) {
	return 0, fmt.Errorf("clientgo: external timestamp: %w", errors.ErrUnsupported)
}

// SetExternalTimestamp always fails, as GetExternalTimestamp does.
func (k *Oracle) SetExternalTimestamp(context.Context, uint64) error {
	return fmt.Errorf("clientgo: external timestamp: %w", errors.ErrUnsupported)
}
