//go:build linux

package cluster_test

import (
	"context"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/pingcap/kvproto/pkg/pdpb"
	"github.com/pingcap/log"
	pd "github.com/tikv/pd/client"
	"go.uber.org/zap/zapcore"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/adapters/tikv/gateway"
	"github.com/isotone/isotone/client"
	"github.com/isotone/isotone/internal/check/chaos"
	"github.com/isotone/isotone/internal/check/cluster"
)

// testWait bounds every wait of these tests.
const testWait = time.Minute

// startNodes builds the command of this repository, and starts a cluster of three.
func startNodes(t *testing.T) *chaos.Cluster {
	t.Helper()
	if testing.Short() {
		t.Skip("builds and starts nodes")
	}
	binary, err := cluster.Build(t.Context(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	return chaos.StartCluster(t, chaos.Options{Binary: binary})
}

func connect(t *testing.T, nodes *chaos.Cluster) *client.Client {
	t.Helper()
	c, err := client.New(testContext(t), nodes.Addrs()...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// startGateway returns the address of a gateway in front of the nodes.
func startGateway(t *testing.T, nodes *chaos.Cluster) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	g, err := gateway.New(gateway.Config{Source: connect(t, nodes), Members: []string{"http://" + ln.Addr().String()}})
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- g.Serve(ln) }()
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), testWait)
		defer cancel()
		if err := g.Shutdown(ctx); err != nil {
			t.Error(err)
		}
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
	return ln.Addr().String()
}

// newPDClient returns PD's own client, of a gateway of its own.
func newPDClient(t *testing.T, nodes *chaos.Cluster) pd.Client {
	t.Helper()
	log.SetLevel(zapcore.FatalLevel)
	c, err := pd.NewClientWithContext(testContext(t), []string{startGateway(t, nodes)}, pd.SecurityOption{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

func testContext(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), testWait)
	t.Cleanup(cancel)
	return ctx
}

// order checks that every timestamp is above all that were received before it was asked for.
type order struct {
	mu     sync.Mutex
	latest isotone.Timestamp
	count  int
}

func (o *order) state() (latest isotone.Timestamp, count int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.latest, o.count
}

// get calls ask once, and reports the error of ask.
func (o *order) get(t *testing.T, ask func() (isotone.Timestamp, error)) error {
	before, _ := o.state()
	ts, err := ask()
	if err != nil {
		return err
	}
	if !before.Before(ts) {
		t.Errorf("timestamp %v after %v was received", ts, before)
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.count++
	if o.latest.Before(ts) {
		o.latest = ts
	}
	return nil
}

func askPD(ctx context.Context, c pd.Client) func() (isotone.Timestamp, error) {
	return func() (isotone.Timestamp, error) {
		physical, logical, err := c.GetTS(ctx)
		if err != nil {
			return isotone.Timestamp{}, err
		}
		return isotone.NewTimestamp64(uint64(physical), uint64(logical)).Timestamp(), nil
	}
}

func TestGateway_IsInOneOrderWithOtherClients(t *testing.T) {
	nodes := startNodes(t)
	first, second, own := newPDClient(t, nodes), newPDClient(t, nodes), connect(t, nodes)
	ctx := testContext(t)
	if got, want := first.GetClusterID(ctx), uint64(own.Cluster()); got != want {
		t.Errorf("PD's client has cluster %d, want %d", got, want)
	}
	var o order
	var work sync.WaitGroup
	for _, ask := range []func() (isotone.Timestamp, error){
		askPD(ctx, first), askPD(ctx, second),
		func() (isotone.Timestamp, error) { return own.Timestamp(ctx) },
		func() (isotone.Timestamp, error) {
			ts, err := own.Timestamp64(ctx)
			return ts.Timestamp(), err
		},
	} {
		for range 16 {
			work.Go(func() {
				for range 100 {
					if err := o.get(t, ask); err != nil {
						t.Error(err)
						return
					}
				}
			})
		}
	}
	work.Wait()
	if latest, _ := o.state(); time.Since(isotone.Timestamp64From(latest).Time()).Abs() > testWait {
		t.Errorf("the latest timestamp is %v", latest)
	}
}

// The largest counts of many streams do not fit into one request to the cluster.
func TestGateway_AnswersTheLargestCounts(t *testing.T) {
	nodes := startNodes(t)
	conn, err := grpc.NewClient(startGateway(t, nodes), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	ctx := testContext(t)
	header := &pdpb.RequestHeader{ClusterId: uint64(connect(t, nodes).Cluster())}
	var o order
	var work sync.WaitGroup
	for range 16 {
		stream, err := pdpb.NewPDClient(conn).Tso(ctx)
		if err != nil {
			t.Fatal(err)
		}
		work.Go(func() {
			for range 20 {
				if err := o.get(t, func() (isotone.Timestamp, error) {
					if err := stream.Send(&pdpb.TsoRequest{Header: header, Count: gateway.CountMax}); err != nil {
						return isotone.Timestamp{}, err
					}
					got, err := stream.Recv()
					if err != nil {
						return isotone.Timestamp{}, err
					}
					if ts := got.GetTimestamp(); ts.Logical < gateway.CountMax-1 {
						t.Errorf("%d timestamps end at counter %d", uint64(gateway.CountMax), ts.Logical)
					}
					return isotone.NewTimestamp64(uint64(got.Timestamp.Physical), uint64(got.Timestamp.Logical)).Timestamp(), nil
				}); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	work.Wait()
}

// A leader is killed: the gateway waits for the next one, so that no call fails, let alone gets a
// timestamp out of order.
func TestGateway_SurvivesTheLossOfALeader(t *testing.T) {
	nodes := startNodes(t)
	c := newPDClient(t, nodes)
	ctx := testContext(t)
	var o order
	var work sync.WaitGroup
	stop := make(chan struct{})
	for range 8 {
		work.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				if err := o.get(t, askPD(ctx, c)); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	waitFor(t, ctx, &o, 100)
	nodes.WaitLeader().Kill()
	_, before := o.state()
	waitFor(t, ctx, &o, before+100)
	close(stop)
	work.Wait()
}

// waitFor waits until count timestamps were received.
func waitFor(t *testing.T, ctx context.Context, o *order, count int) {
	t.Helper()
	for _, got := o.state(); got < count && !t.Failed(); _, got = o.state() {
		select {
		case <-ctx.Done():
			t.Fatalf("%d timestamps in %v, want %d", got, testWait, count)
		case <-time.After(time.Millisecond):
		}
	}
}
