package gateway_test

import (
	"context"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/pingcap/kvproto/pkg/pdpb"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/adapters/tikv/gateway"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// testWait bounds every wait of these tests.
const testWait = time.Minute

const testCluster isotone.ClusterID = 0x5e1f0c3a9b2d4e71

// source issues consecutive timestamps, as fast as it is asked.
type source struct {
	mu    sync.Mutex
	next  isotone.Timestamp64
	err   error // set: every call fails
	calls int
	total uint64
	// gate, if not nil, has each call take a value first.
	gate    chan struct{}
	cluster isotone.ClusterID
}

// newSource returns a source whose first range begins counter timestamps into a millisecond.
func newSource(counter uint64) *source {
	return &source{next: isotone.NewTimestamp64(uint64(time.Now().UnixMilli()), counter), cluster: testCluster}
}

func (s *source) Timestamps64(ctx context.Context, count uint64) (isotone.Range64, error) {
	s.mu.Lock()
	gate := s.gate
	s.mu.Unlock()
	if gate != nil {
		select {
		case <-gate:
		case <-ctx.Done():
			return isotone.Range64{}, isotone.Errorf(isotone.CodeDeadlineExceeded, "no answer in time")
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err != nil {
		return isotone.Range64{}, s.err
	}
	r := isotone.Range64{First: s.next, Count: count}
	s.next += isotone.Timestamp64(count)
	s.calls++
	s.total += count
	return r, nil
}

func (s *source) Timestamp64(ctx context.Context) (isotone.Timestamp64, error) {
	r, err := s.Timestamps64(ctx, 1)
	return r.First, err
}

func (s *source) Cluster() isotone.ClusterID {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.cluster
}

func (s *source) set(change func(*source)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change(s)
}

// running is a gateway on a loopback address.
type running struct {
	*gateway.Server
	t      *testing.T
	addr   string
	served chan error
	once   sync.Once
}

func listen(t testing.TB) net.Listener {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return ln
}

// start runs a gateway on ln until the end of the test. others are the addresses of further members.
func start(t *testing.T, ln net.Listener, c gateway.Config, others ...string) *running {
	t.Helper()
	scheme := "http://"
	if c.TLS != nil {
		scheme = "https://"
	}
	g := &running{t: t, addr: ln.Addr().String(), served: make(chan error, 1)}
	for _, addr := range append([]string{g.addr}, others...) {
		c.Members = append(c.Members, scheme+addr)
	}
	var err error
	if g.Server, err = gateway.New(c); err != nil {
		t.Fatal(err)
	}
	go func() { g.served <- g.Serve(ln) }()
	t.Cleanup(func() { g.stop() })
	return g
}

func startOne(t *testing.T, s gateway.Source) *running {
	t.Helper()
	return start(t, listen(t), gateway.Config{Source: s})
}

// stop ends the gateway with a drain.
func (g *running) stop() {
	g.once.Do(func() {
		ctx, cancel := context.WithTimeout(context.Background(), testWait)
		defer cancel()
		if err := g.Shutdown(ctx); err != nil {
			g.t.Errorf("Shutdown: %v", err)
		}
		if err := <-g.served; err != nil {
			g.t.Errorf("Serve: %v", err)
		}
	})
}

func testContext(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), testWait)
	t.Cleanup(cancel)
	return ctx
}

// dial returns the bare protocol of a gateway.
func dial(t *testing.T, addr string) pdpb.PDClient {
	t.Helper()
	return pdpb.NewPDClient(dialConn(t, addr))
}

func dialConn(t *testing.T, addr string) *grpc.ClientConn {
	t.Helper()
	conn, err := grpc.NewClient(addr, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

func openStream(t *testing.T, addr string) pdpb.PD_TsoClient {
	t.Helper()
	stream, err := dial(t, addr).Tso(testContext(t))
	if err != nil {
		t.Fatal(err)
	}
	return stream
}

func ask(t *testing.T, stream pdpb.PD_TsoClient, count uint32) {
	t.Helper()
	if err := stream.Send(askFor(count)); err != nil {
		t.Fatal(err)
	}
}

func askFor(count uint32) *pdpb.TsoRequest {
	return &pdpb.TsoRequest{Header: &pdpb.RequestHeader{ClusterId: uint64(testCluster)}, Count: count, DcLocation: "global"}
}
