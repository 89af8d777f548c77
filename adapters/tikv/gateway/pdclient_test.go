package gateway_test

import (
	"context"
	"crypto/tls"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/pingcap/log"
	pd "github.com/tikv/pd/client"
	"go.uber.org/zap/zapcore"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/adapters/tikv/gateway"
	"github.com/isotone/isotone/internal/auth/authority"
)

// newPDClient returns PD's own client. It writes a lot of logs.
func newPDClient(t *testing.T, security pd.SecurityOption, addrs ...string) pd.Client {
	t.Helper()
	log.SetLevel(zapcore.FatalLevel)
	c, err := pd.NewClientWithContext(testContext(t), addrs, security)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

func TestPDClient_GetsTimestampsInOrder(t *testing.T) {
	c := newPDClient(t, pd.SecurityOption{}, startOne(t, newSource(1<<18-100)).addr)
	if got := c.GetClusterID(t.Context()); got != uint64(testCluster) {
		t.Errorf("the client has cluster %d, want %d", got, uint64(testCluster))
	}
	const callers, calls = 64, 100
	ctx := testContext(t)
	got := make([][]isotone.Timestamp64, callers)
	var work sync.WaitGroup
	for i := range got {
		work.Go(func() {
			for range calls {
				physical, logical, err := c.GetTS(ctx)
				if err != nil {
					t.Error(err)
					return
				}
				got[i] = append(got[i], isotone.NewTimestamp64(uint64(physical), uint64(logical)))
			}
		})
	}
	work.Wait()
	var all []isotone.Timestamp64
	for _, own := range got {
		if !slices.IsSorted(own) {
			t.Error("the timestamps of a caller are not in order")
		}
		all = append(all, own...)
	}
	slices.Sort(all)
	if n := len(slices.Compact(all)); n != callers*calls {
		t.Errorf("%d different timestamps, want %d", n, callers*calls)
	}
}

// The forms that pd-tso-bench and client-go use.
func TestPDClient_HasItsOtherForms(t *testing.T) {
	c := newPDClient(t, pd.SecurityOption{}, startOne(t, newSource(0)).addr)
	ctx := testContext(t)
	var last isotone.Timestamp64
	for name, get := range map[string]func() (int64, int64, error){
		"GetLocalTS global": func() (int64, int64, error) { return c.GetLocalTS(ctx, "global") },
		"GetTSAsync":        func() (int64, int64, error) { return c.GetTSAsync(ctx).Wait() },
		"GetLocalTSAsync":   func() (int64, int64, error) { return c.GetLocalTSAsync(ctx, "global").Wait() },
		"GetMinTS":          func() (int64, int64, error) { return c.GetMinTS(ctx) },
	} {
		physical, logical, err := get()
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		ts := isotone.NewTimestamp64(uint64(physical), uint64(logical))
		if ts <= last {
			t.Errorf("%s: %v is not above %v", name, ts, last)
		}
		last = ts
	}
}

// eventually calls get until it succeeds: a call fails while the client looks for a leader.
func eventually(t *testing.T, get func(context.Context) error) {
	t.Helper()
	ctx := testContext(t)
	for {
		err := get(ctx)
		if err == nil {
			return
		}
		select {
		case <-ctx.Done():
			t.Fatalf("no answer in %v: %v", testWait, err)
		case <-time.After(10 * time.Millisecond):
		}
	}
}

func TestPDClient_FollowsToAnotherGateway(t *testing.T) {
	shared := newSource(0)
	lns := []net.Listener{listen(t), listen(t)}
	a, b := lns[0].Addr().String(), lns[1].Addr().String()
	first := start(t, lns[0], gateway.Config{Source: shared}, b)
	start(t, lns[1], gateway.Config{Source: shared}, a)
	c := newPDClient(t, pd.SecurityOption{}, a) // it learns the other one
	before, _, err := c.GetTS(testContext(t))
	if err != nil {
		t.Fatal(err)
	}
	first.stop()
	eventually(t, func(ctx context.Context) error {
		after, _, err := c.GetTS(ctx)
		if err == nil && after < before {
			t.Fatalf("millisecond %d after %d", after, before)
		}
		return err
	})
}

func TestPDClient_RecoversWhenTheClusterAnswersAgain(t *testing.T) {
	s := newSource(0)
	c := newPDClient(t, pd.SecurityOption{}, startOne(t, s).addr)
	s.set(func(s *source) { s.err = isotone.Errorf(isotone.CodeNoLeader, "an election is under way") })
	if _, _, err := c.GetTS(testContext(t)); err == nil {
		t.Fatal("a timestamp although the cluster does not answer")
	}
	s.set(func(s *source) { s.err = nil })
	eventually(t, func(ctx context.Context) error {
		_, _, err := c.GetTS(ctx)
		return err
	})
}

func TestPDClient_SpeaksTLS(t *testing.T) {
	dir := &authority.Dir{Path: t.TempDir()}
	ca := made(t)(dir.Authority("test", time.Hour, false))
	own := made(t)(dir.Sign(authority.Node("test", 1, []string{"127.0.0.1"}), time.Hour))
	client := made(t)(dir.Sign(authority.Client("test", "tidb"), time.Hour))
	pair, err := tls.LoadX509KeyPair(own.Cert, own.Key)
	if err != nil {
		t.Fatal(err)
	}
	g := start(t, listen(t), gateway.Config{Source: newSource(0), TLS: &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12}})
	c := newPDClient(t, pd.SecurityOption{CAPath: ca.Cert, CertPath: client.Cert, KeyPath: client.Key}, "https://"+g.addr)
	if _, _, err := c.GetTS(testContext(t)); err != nil {
		t.Fatal(err)
	}
}

func made(t *testing.T) func(authority.Made, error) authority.Made {
	return func(m authority.Made, err error) authority.Made {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return m
	}
}
