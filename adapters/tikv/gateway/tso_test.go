package gateway_test

import (
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/pingcap/kvproto/pkg/pdpb"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/adapters/tikv/gateway"
)

// checkAnswer returns the last timestamp of an answer, all of whose timestamps must lie in one
// millisecond and above last.
func checkAnswer(t *testing.T, a *pdpb.TsoResponse, count uint32, last isotone.Timestamp64) isotone.Timestamp64 {
	t.Helper()
	ts := a.GetTimestamp()
	if a.GetCount() != count || a.GetHeader().GetClusterId() != uint64(testCluster) || ts.GetSuffixBits() != 0 {
		t.Fatalf("got %v, want %d timestamps of cluster %d", a, count, uint64(testCluster))
	}
	if ts.Logical < int64(count)-1 || ts.Logical >= 1<<18 {
		t.Fatalf("the largest counter is %d: %d timestamps are not in one millisecond", ts.Logical, count)
	}
	got := isotone.NewTimestamp64(uint64(ts.Physical), uint64(ts.Logical))
	if first := got - isotone.Timestamp64(count-1); first <= last {
		t.Fatalf("the first timestamp is %v, want one above %v", first, last)
	}
	return got
}

func TestTso_AnswersInOneMillisecondWhereverARangeBegins(t *testing.T) {
	for _, counter := range []uint64{0, 1, 1<<17 - 1, 1 << 17, 1<<18 - 10_001, 1<<18 - 10_000, 1<<18 - 9_999, 1<<18 - 2, 1<<18 - 1} {
		stream := openStream(t, startOne(t, newSource(counter)).addr)
		var last isotone.Timestamp64
		for _, count := range []uint32{1, 2, 10_000, 1, gateway.CountMax, 1} {
			ask(t, stream, count)
			answer, err := stream.Recv()
			if err != nil {
				t.Fatal(err)
			}
			last = checkAnswer(t, answer, count, last)
		}
	}
}

// Clients may send requests without waiting for answers.
func TestTso_RequestsThatWaitAreAnsweredInOrder(t *testing.T) {
	s := newSource(1<<18 - 50_000)
	s.gate = make(chan struct{})
	g := startOne(t, s)
	stream := openStream(t, g.addr)
	random := rand.New(rand.NewPCG(1, 2))
	counts := make([]uint32, 1000)
	for i := range counts {
		counts[i] = 1 + random.Uint32N(300)
		ask(t, stream, counts[i])
	}
	close(s.gate)
	var last isotone.Timestamp64
	for _, count := range counts {
		answer, err := stream.Recv()
		if err != nil {
			t.Fatal(err)
		}
		last = checkAnswer(t, answer, count, last)
	}
}

// What one client receives before another one asks is smaller than what that receives.
func TestTso_StreamsAreInOneOrder(t *testing.T) {
	g := startOne(t, newSource(0))
	var mu sync.Mutex
	var seen isotone.Timestamp64
	var work sync.WaitGroup
	for range 8 {
		stream := openStream(t, g.addr)
		work.Go(func() {
			for range 200 {
				mu.Lock()
				before := seen
				mu.Unlock()
				if err := stream.Send(askFor(3)); err != nil {
					t.Error(err)
					return
				}
				answer, err := stream.Recv()
				if err != nil {
					t.Error(err)
					return
				}
				ts := answer.GetTimestamp()
				last := isotone.NewTimestamp64(uint64(ts.Physical), uint64(ts.Logical))
				if last-2 <= before {
					t.Errorf("first timestamp %v, want one above %v", last-2, before)
				}
				mu.Lock()
				seen = max(seen, last)
				mu.Unlock()
			}
		})
	}
	work.Wait()
}

func TestTso_RefusesWhatPDRefuses(t *testing.T) {
	request := func(change func(*pdpb.TsoRequest)) *pdpb.TsoRequest {
		r := askFor(1)
		change(r)
		return r
	}
	g := startOne(t, newSource(0))
	for name, c := range map[string]struct {
		request *pdpb.TsoRequest
		code    codes.Code
		want    string
	}{
		"another cluster": {request(func(r *pdpb.TsoRequest) { r.Header.ClusterId = 7 }), codes.FailedPrecondition, "mismatch cluster id, need 6782153009694330481 but got 7"},
		"no header":       {&pdpb.TsoRequest{Count: 1}, codes.FailedPrecondition, "but got 0"},
		"no count":        {request(func(r *pdpb.TsoRequest) { r.Count = 0 }), codes.InvalidArgument, "want 1 to 131072"},
		"a large count":   {request(func(r *pdpb.TsoRequest) { r.Count = gateway.CountMax + 1 }), codes.InvalidArgument, "want 1 to 131072"},
		"a local order":   {request(func(r *pdpb.TsoRequest) { r.DcLocation = "dc-1" }), codes.InvalidArgument, "global timestamps only"},
	} {
		t.Run(name, func(t *testing.T) {
			stream := openStream(t, g.addr)
			ask(t, stream, 5) // what comes before the bad request is answered
			if err := stream.Send(c.request); err != nil {
				t.Fatal(err)
			}
			if _, err := stream.Recv(); err != nil {
				t.Fatal(err)
			}
			_, err := stream.Recv()
			if status.Code(err) != c.code || !strings.Contains(err.Error(), c.want) {
				t.Fatalf("got %v, want %v with %q", err, c.code, c.want)
			}
		})
	}
}

func TestTso_RefusesALargeMessage(t *testing.T) {
	stream := openStream(t, startOne(t, newSource(0)).addr)
	large := askFor(1)
	large.DcLocation = strings.Repeat("x", 1<<16)
	if err := stream.Send(large); err != nil {
		t.Fatal(err)
	}
	if _, err := stream.Recv(); status.Code(err) != codes.ResourceExhausted {
		t.Fatalf("got %v, want ResourceExhausted", err)
	}
}

func TestTso_EndsAStreamWhenTheClusterDoesNotAnswer(t *testing.T) {
	for code, want := range map[isotone.Code]codes.Code{
		isotone.CodeNoLeader: codes.Unavailable, isotone.CodeOverloaded: codes.Unavailable, isotone.CodeDeadlineExceeded: codes.Unavailable,
		isotone.CodeQuotaExceeded: codes.Unavailable, isotone.CodeClock: codes.Unavailable, isotone.CodeUnauthorized: codes.PermissionDenied,
		isotone.CodeForbidden: codes.PermissionDenied, isotone.CodeRegressed: codes.FailedPrecondition, isotone.CodeWrongCluster: codes.FailedPrecondition,
		isotone.CodeInternal: codes.Internal,
	} {
		s := newSource(0)
		s.err = isotone.Errorf(code, "a reason")
		stream := openStream(t, startOne(t, s).addr)
		ask(t, stream, 1)
		if _, err := stream.Recv(); status.Code(err) != want || !strings.Contains(err.Error(), string(code)+": a reason") {
			t.Errorf("%s: got %v, want %v", code, err, want)
		}
	}
}

func TestTso_WaitsNoLongerThanTheTimeout(t *testing.T) {
	s := newSource(0)
	s.gate = make(chan struct{}) // nothing is ever answered
	g := start(t, listen(t), gateway.Config{Source: s, Timeout: 50 * time.Millisecond})
	stream := openStream(t, g.addr)
	ask(t, stream, 1)
	if _, err := stream.Recv(); status.Code(err) != codes.Unavailable {
		t.Fatalf("got %v, want Unavailable", err)
	}
	if err := g.Ready(t.Context()); !errors.Is(err, isotone.ErrDeadlineExceeded) && !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("ready: %v, want the deadline", err)
	}
}

// shortSource answers with less than was asked for.
type shortSource struct{ *source }

func (s shortSource) Timestamps64(ctx context.Context, count uint64) (isotone.Range64, error) {
	return s.source.Timestamps64(ctx, count-1)
}

func TestTso_DoesNotUseAnAnswerOfAnotherLength(t *testing.T) {
	stream := openStream(t, startOne(t, shortSource{newSource(0)}).addr)
	ask(t, stream, 10)
	if _, err := stream.Recv(); status.Code(err) != codes.Internal {
		t.Fatalf("got %v, want Internal", err)
	}
}

func TestTso_AnswersWhatHasArrivedWhenItStops(t *testing.T) {
	s := newSource(0)
	s.gate = make(chan struct{})
	g := startOne(t, s)
	stream := openStream(t, g.addr)
	ask(t, stream, 7)
	s.gate <- struct{}{} // the gateway has the request
	s.set(func(s *source) { s.gate = nil })
	g.stop()
	answer, err := stream.Recv()
	if err != nil {
		t.Fatal(err)
	}
	checkAnswer(t, answer, 7, 0)
	if _, err := stream.Recv(); err != io.EOF {
		t.Fatalf("got %v, want the end of the stream", err)
	}
}

func TestShutdown_CutsOffWhatDoesNotEndInTime(t *testing.T) {
	s := newSource(0)
	s.gate = make(chan struct{})
	ln := listen(t)
	g, err := gateway.New(gateway.Config{Source: s, Members: []string{"http://" + ln.Addr().String()}, Timeout: testWait})
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- g.Serve(ln) }()
	stream := openStream(t, ln.Addr().String())
	ask(t, stream, 1)
	s.gate <- struct{}{}
	if _, err := stream.Recv(); err != nil {
		t.Fatal(err)
	}
	ask(t, stream, 1)
	if err := stream.Send(askFor(1)); err != nil {
		t.Fatal(err)
	}
	stopped, cancel := context.WithCancel(t.Context())
	cancel()
	if err := g.Shutdown(stopped); err != context.Canceled {
		t.Fatalf("Shutdown: got %v, want context.Canceled", err)
	}
	if err := <-served; err != nil {
		t.Fatal(err)
	}
}
