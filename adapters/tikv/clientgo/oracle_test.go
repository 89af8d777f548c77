package clientgo_test

import (
	"context"
	"errors"
	"math"
	"sync"
	"testing"
	"time"

	"github.com/tikv/client-go/v2/oracle"
	"go.uber.org/goleak"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/adapters/tikv/clientgo"
)

// never is an update interval in which a test is over.
const never = 24 * time.Hour

func newOracle(t *testing.T, s clientgo.Source, update time.Duration) *clientgo.Oracle {
	t.Helper()
	others := goleak.IgnoreCurrent() // client-go has some of its own
	t.Cleanup(func() { goleak.VerifyNone(t, others) })
	k, err := clientgo.NewOracle(testContext(t), s, clientgo.Options{UpdateInterval: update})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(k.Close)
	return k
}

func TestOracle_GivesTimestampsInOrder(t *testing.T) {
	k := newOracle(t, &source{}, never)
	ctx := testContext(t)
	var last uint64
	for name, get := range map[string]func() (uint64, error){
		"GetTimestamp":                func() (uint64, error) { return k.GetTimestamp(ctx, &oracle.Option{TxnScope: oracle.GlobalTxnScope}) },
		"GetTimestamp, another scope": func() (uint64, error) { return k.GetTimestamp(ctx, &oracle.Option{TxnScope: "dc-1"}) },
		"GetTimestampAsync":           func() (uint64, error) { return k.GetTimestampAsync(ctx, nil).Wait() },
		"GetAllTSOKeyspaceGroupMinTS": func() (uint64, error) { return k.GetAllTSOKeyspaceGroupMinTS(ctx) },
	} {
		got, err := get()
		if err != nil || got <= last {
			t.Errorf("%s: got %d, %v; want more than %d", name, got, err, last)
		}
		last = got
		if low, err := k.GetLowResolutionTimestamp(ctx, nil); err != nil || low != got {
			t.Errorf("%s: the low resolution timestamp is %d, %v; want %d", name, low, err, got)
		}
	}
	if low, err := k.GetLowResolutionTimestampAsync(ctx, nil).Wait(); err != nil || low != last {
		t.Errorf("GetLowResolutionTimestampAsync: %d, %v; want %d", low, err, last)
	}
}

func TestOracle_FuturesAreRequestedAtOnce(t *testing.T) {
	s := &source{}
	k := newOracle(t, s, never)
	futures := make([]oracle.Future, 100)
	for i := range futures {
		futures[i] = k.GetTimestampAsync(testContext(t), nil)
	}
	seen := map[uint64]bool{}
	for _, f := range futures {
		first, err := f.Wait()
		again, err2 := f.Wait()
		if err != nil || err2 != nil || first != again || seen[first] {
			t.Fatalf("got %d, %v and %d, %v; want the same, and a new one", first, err, again, err2)
		}
		seen[first] = true
	}
}

func TestOracle_CloseFailsWhatWaits(t *testing.T) {
	s := &source{}
	k := newOracle(t, s, never)
	s.set(func(s *source) { s.hold = true })
	waiting := k.GetTimestampAsync(context.Background(), nil)
	k.Close()
	if _, err := waiting.Wait(); !errors.Is(err, clientgo.ErrClosed) {
		t.Errorf("a future that waits: %v, want ErrClosed", err)
	}
	if _, err := k.GetTimestampAsync(context.Background(), nil).Wait(); !errors.Is(err, clientgo.ErrClosed) {
		t.Errorf("a future after Close: %v, want ErrClosed", err)
	}
}

func TestOracle_FuturesEndWithTheirContext(t *testing.T) {
	s := &source{}
	k := newOracle(t, s, never)
	s.set(func(s *source) { s.hold = true })
	ctx, cancel := context.WithCancel(t.Context())
	waiting := k.GetTimestampAsync(ctx, nil)
	cancel()
	if _, err := waiting.Wait(); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want context.Canceled", err)
	}
}

func TestNewOracle_FailsWithoutAFirstTimestamp(t *testing.T) {
	s := &source{err: isotone.Errorf(isotone.CodeNoLeader, "no leader is known")}
	if _, err := clientgo.NewOracle(testContext(t), s, clientgo.Options{}); !errors.Is(err, isotone.ErrNoLeader) {
		t.Errorf("got %v, want ErrNoLeader", err)
	}
	if _, err := clientgo.NewOracle(testContext(t), &source{}, clientgo.Options{UpdateInterval: -1}); !errors.Is(err, isotone.ErrInvalidArgument) {
		t.Errorf("a negative interval: %v", err)
	}
}

func TestOracle_UpdatesTheLowResolutionTimestamp(t *testing.T) {
	s := &source{}
	k := newOracle(t, s, never)
	ctx := testContext(t)
	before, _ := k.GetLowResolutionTimestamp(ctx, nil)
	if err := k.SetLowResolutionTimestampUpdateInterval(0); !errors.Is(err, isotone.ErrInvalidArgument) {
		t.Errorf("an interval of 0: %v", err)
	}
	if err := k.SetLowResolutionTimestampUpdateInterval(time.Millisecond); err != nil {
		t.Fatal(err)
	}
	for {
		if now, err := k.GetLowResolutionTimestamp(ctx, nil); err != nil {
			t.Fatal(err)
		} else if now > before {
			return
		}
		select {
		case <-ctx.Done():
			t.Fatal("no update")
		case <-time.After(time.Millisecond):
		}
	}
}

func TestOracle_KeepsTheLowResolutionTimestampWhileTheClusterFails(t *testing.T) {
	s := &source{}
	k := newOracle(t, s, time.Millisecond)
	s.set(func(s *source) { s.err = isotone.Errorf(isotone.CodeNoLeader, "no leader is known") })
	if _, err := k.GetTimestamp(testContext(t), nil); !errors.Is(err, isotone.ErrNoLeader) {
		t.Errorf("GetTimestamp: %v", err)
	}
	if low, err := k.GetLowResolutionTimestamp(t.Context(), nil); err != nil || low == 0 {
		t.Errorf("GetLowResolutionTimestamp: %d, %v", low, err)
	}
}

func TestOracle_LocksExpire(t *testing.T) {
	k := newOracle(t, &source{}, never)
	low, _ := k.GetLowResolutionTimestamp(t.Context(), nil)
	lock := oracle.ComposeTS(oracle.ExtractPhysical(low)-1000, 5) // a second before
	for _, c := range []struct {
		ttl     uint64
		left    int64
		expired bool
	}{{0, -1000, true}, {999, -1, true}, {1000, 0, true}, {1001, 1, false}, {3000, 2000, false}} {
		left, expired := k.UntilExpired(lock, c.ttl, nil), k.IsExpired(lock, c.ttl, nil)
		if left != c.left || expired != c.expired {
			t.Errorf("TTL %d: %d left, expired %v; want %d, %v", c.ttl, left, expired, c.left, c.expired)
		}
	}
	if k.IsExpired(lock, math.MaxUint64, nil) {
		t.Error("a lock that never expires has expired")
	}
}

func TestOracle_StaleTimestampsAreSecondsOld(t *testing.T) {
	k := newOracle(t, &source{}, never)
	for _, ago := range []uint64{0, 1, 60, 86_400} {
		got, err := k.GetStaleTimestamp(t.Context(), oracle.GlobalTxnScope, ago)
		if err != nil {
			t.Fatal(err)
		}
		off := time.Since(oracle.GetTimeFromTS(got)) - time.Duration(ago)*time.Second
		if off.Abs() > testWait || oracle.ExtractLogical(got) != 0 {
			t.Errorf("%d s ago: %v off, counter %d", ago, off, oracle.ExtractLogical(got))
		}
	}
	for _, ago := range []uint64{1 << 40, math.MaxUint64} {
		if got, err := k.GetStaleTimestamp(t.Context(), oracle.GlobalTxnScope, ago); !errors.Is(err, isotone.ErrInvalidArgument) {
			t.Errorf("%d s ago: %d, %v", ago, got, err)
		}
	}
}

func TestOracle_ValidatesReadTimestamps(t *testing.T) {
	s := &source{}
	k := newOracle(t, s, never)
	ctx := testContext(t)
	low, _ := k.GetLowResolutionTimestamp(ctx, nil)
	asked := s.asked()
	if err := k.ValidateSnapshotReadTS(ctx, low, nil); err != nil || s.asked() != asked {
		t.Errorf("a known timestamp: %v after %d requests, want none", err, s.asked()-asked)
	}
	if err := k.ValidateSnapshotReadTS(ctx, low+1, nil); err != nil || s.asked() != asked+1 {
		t.Errorf("a later timestamp: %v after %d requests, want one", err, s.asked()-asked)
	}
	future := low + 3600*1000<<18
	if err := k.ValidateSnapshotReadTS(ctx, future, nil); !errors.Is(err, clientgo.ErrFuture) {
		t.Errorf("in an hour: %v, want ErrFuture", err)
	}
	if err := k.ValidateReadTS(ctx, math.MaxUint64, false, nil); err != nil {
		t.Errorf("the latest version: %v", err)
	}
	if err := k.ValidateReadTS(ctx, math.MaxUint64, true, nil); !errors.Is(err, clientgo.ErrFuture) {
		t.Errorf("a stale read of the latest version: %v, want ErrFuture", err)
	}
	s.set(func(s *source) { s.err = isotone.Errorf(isotone.CodeNoLeader, "no leader is known") })
	if err := k.ValidateSnapshotReadTS(ctx, future, nil); !errors.Is(err, isotone.ErrNoLeader) {
		t.Errorf("without a leader: %v, want ErrNoLeader", err)
	}
}

func TestOracle_HasNoExternalTimestamp(t *testing.T) {
	k := newOracle(t, &source{}, never)
	if _, err := k.GetExternalTimestamp(t.Context()); !errors.Is(err, errors.ErrUnsupported) {
		t.Error(err)
	}
	if err := k.SetExternalTimestamp(t.Context(), 1); !errors.Is(err, errors.ErrUnsupported) {
		t.Error(err)
	}
}

// Callers on many goroutines never see the low resolution timestamp go back.
func TestOracle_LowResolutionNeverGoesBack(t *testing.T) {
	k := newOracle(t, &source{}, never)
	ctx := testContext(t)
	var work sync.WaitGroup
	for range 8 {
		work.Go(func() {
			var last uint64
			for range 500 {
				got, err := k.GetTimestamp(ctx, nil)
				low, _ := k.GetLowResolutionTimestamp(ctx, nil)
				if err != nil || low < got || low < last {
					t.Errorf("timestamp %d, %v; low resolution %d after %d", got, err, low, last)
					return
				}
				last = low
			}
		})
	}
	work.Wait()
}
