//go:build linux

package node_test

import (
	"context"
	"fmt"
	"net"
	"strconv"
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
	"github.com/isotone/isotone/client"
	"github.com/isotone/isotone/internal/check/await"
	"github.com/isotone/isotone/internal/check/chaos"
	"github.com/isotone/isotone/internal/check/cluster"
	"github.com/isotone/isotone/internal/check/ports"
)

// testWait bounds every wait of these tests.
const testWait = time.Minute

// nodes is a cluster whose nodes have ports for clients of PD.
type nodes struct {
	*chaos.Cluster
	pd map[uint64]string // addresses, by node ID
}

// start builds the command of this repository, and starts a cluster; 0 stands for three nodes.
func start(t *testing.T, count int, env map[string]string) *nodes {
	t.Helper()
	c := prepare(t, count, env)
	c.Start()
	c.WaitReady()
	return c
}

// prepare is start but for the start.
func prepare(t *testing.T, count int, env map[string]string) *nodes {
	t.Helper()
	binary, err := cluster.Build(t.Context(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	c := &nodes{chaos.NewCluster(t, chaos.Options{Binary: binary, Nodes: count, Env: env}), map[uint64]string{}}
	port := func(n *chaos.Node) int {
		_, text, _ := net.SplitHostPort(n.HTTPAddr)
		port, _ := strconv.Atoi(text)
		return port
	}
	first, last := port(c.Nodes[0]), port(c.Nodes[len(c.Nodes)-1])
	free, err := ports.Free(last - first + 1)
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range c.Nodes { // the same distance to the port of the client address at all of them
		own := free + port(n) - first
		n.Env["PD_PORT"] = fmt.Sprint(own)
		c.pd[n.ID] = fmt.Sprint("127.0.0.1:", own)
	}
	return c
}

// follower returns the address of a node that does not lead.
func (c *nodes) follower() string {
	leader := c.WaitLeader().ID
	for id, addr := range c.pd {
		if id != leader {
			return addr
		}
	}
	panic("no follower")
}

func newPDClient(t *testing.T, security pd.SecurityOption, addrs ...string) pd.Client {
	t.Helper()
	log.SetLevel(zapcore.FatalLevel) // it writes a lot of logs
	c, err := pd.NewClientWithContext(testContext(t), addrs, security)
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
	latest isotone.Timestamp64
	count  int
}

func (o *order) state() (latest isotone.Timestamp64, count int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.latest, o.count
}

// get calls ask once.
func (o *order) get(t *testing.T, ask func() (isotone.Timestamp64, error)) error {
	before, _ := o.state()
	ts, err := ask()
	if err != nil {
		return err
	}
	if ts <= before {
		t.Errorf("timestamp %v after %v was received", ts, before)
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.count++
	o.latest = max(o.latest, ts)
	return nil
}

func askPD(ctx context.Context, c pd.Client) func() (isotone.Timestamp64, error) {
	return func() (isotone.Timestamp64, error) {
		physical, logical, err := c.GetTS(ctx)
		if err != nil {
			return 0, err
		}
		return isotone.NewTimestamp64(uint64(physical), uint64(logical)), nil
	}
}

func TestPDPort_IsInOneOrderWithOtherClients(t *testing.T) {
	c := start(t, 0, nil)
	own, err := client.New(testContext(t), c.Addrs()...)
	if err != nil {
		t.Fatal(err)
	}
	defer own.Close()
	first, second := newPDClient(t, pd.SecurityOption{}, c.follower()), newPDClient(t, pd.SecurityOption{}, c.pd[1])
	ctx := testContext(t)
	if got, want := first.GetClusterID(ctx), uint64(own.Cluster()); got != want {
		t.Errorf("PD's client has cluster %d, want %d", got, want)
	}
	var o order
	var work sync.WaitGroup
	for _, ask := range []func() (isotone.Timestamp64, error){
		askPD(ctx, first), askPD(ctx, second), func() (isotone.Timestamp64, error) { return own.Timestamp64(ctx) },
	} {
		for range 32 {
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
	if latest, _ := o.state(); time.Since(latest.Time()).Abs() > testWait {
		t.Errorf("the latest timestamp is %v", latest)
	}
}

// A caller repeats a call that has failed, as client-go does.
func TestPDPort_ClientsFollowTheLeader(t *testing.T) {
	for name, end := range map[string]func(*chaos.Node){"kill": (*chaos.Node).Kill, "stop": (*chaos.Node).Shutdown} {
		t.Run(name, func(t *testing.T) {
			c := start(t, 0, nil)
			p := newPDClient(t, pd.SecurityOption{}, c.follower())
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
							_ = o.get(t, askPD(ctx, p))
						}
					}
				})
			}
			waitFor(t, &o, 100)
			end(c.WaitLeader())
			_, before := o.state()
			waitFor(t, &o, before+100)
			close(stop)
			work.Wait()
		})
	}
}

// waitFor waits until count timestamps were received.
func waitFor(t *testing.T, o *order, count int) {
	t.Helper()
	await.Done(t, testWait, func() (bool, string) {
		_, got := o.state()
		return got >= count, fmt.Sprintf("%d timestamps, want %d", got, count)
	})
}

// dial returns the bare protocol of a node.
func dial(t *testing.T, addr string) *grpc.ClientConn {
	t.Helper()
	conn, err := grpc.NewClient(addr, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

func TestPDPort_MembersHaveTheirPorts(t *testing.T) {
	c := start(t, 0, nil)
	leader := c.WaitLeader().ID
	got, err := pdpb.NewPDClient(dial(t, c.follower())).GetMembers(testContext(t), &pdpb.GetMembersRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if len(got.GetMembers()) != len(c.Nodes) || got.GetHeader().GetError() != nil {
		t.Fatalf("got %v", got)
	}
	for _, m := range got.GetMembers() {
		if urls := m.GetClientUrls(); len(urls) != 1 || urls[0] != "http://"+c.pd[m.GetMemberId()] {
			t.Errorf("member %v, want http://%s", m, c.pd[m.GetMemberId()])
		}
	}
	if got.GetLeader().GetMemberId() != leader || got.GetEtcdLeader().GetMemberId() != leader {
		t.Errorf("the leader is %v, want %d", got.GetLeader(), leader)
	}
}
