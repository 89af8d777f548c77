package node_test

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"math"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/check/await"
	"github.com/isotone/isotone/internal/core/oracle"
	"github.com/isotone/isotone/internal/core/wire"
	"github.com/isotone/isotone/internal/front"
	"github.com/isotone/isotone/internal/node"
)

// operated has all nodes of a cluster count the requests of operators that they carry out, and say who asked.
func operated(c *cluster) *atomic.Int64 {
	count := new(atomic.Int64)
	for _, n := range c.nodes {
		n.OperateBy(func(_ context.Context, r front.Carried) (int, []byte) {
			count.Add(1)
			return http.StatusOK, []byte(r.Who)
		})
	}
	return count
}

// A member in plaintext may be any process of this machine. So the leader carries out nothing for it, unless every such process
// is an operator anyway.
func TestCarry_NeedsAMemberThatHasProvenToBeOne(t *testing.T) {
	for _, mutate := range []func(*node.Config){
		nil,
		func(cfg *node.Config) { cfg.CarryInPlaintext = true },
		func(cfg *node.Config) { cfg.PeerInsecure = true },
	} {
		c := newCluster(t, 3, mutate)
		count := operated(c)
		for asked := int64(0); asked < 3; {
			leader := c.leader()
			by := 1 + leader%3
			ctx, cancel := context.WithTimeout(t.Context(), liveness)
			status, body, err := c.nodes[by].Carry(ctx, front.Carried{Who: "ops", Method: http.MethodGet, Target: "/admin/members"})
			cancel()
			switch {
			case mutate == nil && errors.Is(err, isotone.ErrNotLeader) && strings.Contains(err.Error(), "operator.sock"):
				asked++
			case mutate != nil && err == nil && status == http.StatusOK && string(body) == "ops, by node "+string(rune('0'+by)):
				asked++
			case !errors.Is(err, isotone.ErrNoLeader) && !errors.Is(err, isotone.ErrNotLeader): // it may be electing, or connecting
				t.Fatalf("%d, %q, %v", status, body, err)
			}
		}
		if n := count.Load(); (mutate == nil) != (n == 0) {
			t.Errorf("%d requests were carried out", n)
		}
	}
}

// A node without a leader lets in one that it does not know, as that may have been added meanwhile. That gives no rights.
func TestCarry_IsNotForUnknownNodes(t *testing.T) {
	c := newCluster(t, 3, func(cfg *node.Config) { cfg.CarryInPlaintext = true })
	count := operated(c)
	c.leader()
	for _, id := range []uint64{2, 3} {
		if err := c.stop(id); err != nil {
			t.Fatal(err)
		}
	}
	n, addr := c.nodes[1], c.cfgs[1].Peers[1]
	await.Until(t, "node 1 has no leader", func() bool { return n.Status().Leader == 0 })
	stranger := wire.Hello{
		ClusterID: n.Status().ClusterID, NodeID: oracle.MemberID(9, 0), Incarnation: 5, Boot: 1, Session: 7, Term: math.MaxInt32, LastIndex: math.MaxInt32,
		TickNanos: uint64(c.cfgs[1].Tick), Level: oracle.LevelNewest, Stage: 3, ClientAddr: "localhost:1", PeerAddr: "127.0.0.1:2",
	}
	var status int
	var err error
	await.Done(t, await.Timeout, func() (bool, string) { // the first connection only makes it known
		status, err = carryAs(addr, stranger)
		if err != nil {
			return false, err.Error()
		}
		return true, ""
	})
	if status != http.StatusForbidden || count.Load() != 0 {
		t.Errorf("answered %d, %d requests were carried out", status, count.Load())
	}
}

// carryAs connects to a node as the node that h describes, and has it carry out a request.
func carryAs(addr string, h wire.Hello) (status int, err error) {
	c, err := net.Dial("tcp", addr)
	if err != nil {
		return 0, err
	}
	defer c.Close()
	if err := c.SetDeadline(time.Now().Add(time.Second)); err != nil {
		return 0, err
	}
	b, err := wire.AppendHello(nil, wire.FrameHello, h)
	if err != nil {
		return 0, err
	}
	if b, err = wire.AppendCarry(wire.AppendReady(b), 1, &wire.Carry{Who: "stranger", Method: http.MethodGet, Target: "/admin/members"}); err != nil {
		return 0, err
	}
	if _, err := c.Write(b); err != nil {
		return 0, err
	}
	d := new(wire.Decoder)
	d.SetHandshake(true)
	for buf := make([]byte, 1<<16); ; {
		f, ok, err := d.Next()
		switch {
		case err != nil:
			return 0, err
		case !ok:
			n, err := c.Read(buf)
			if n == 0 {
				return 0, errors.Join(err, io.ErrUnexpectedEOF)
			}
			d.Feed(buf[:n])
		case f.Type == wire.FrameRefusal:
			r, err := wire.ParseRefusal(f.Payload)
			return 0, errors.Join(err, r)
		case f.Type == wire.FrameWelcome:
			d.SetHandshake(false)
		case f.Type == wire.FrameCarryAnswer && binary.BigEndian.Uint64(f.Payload) == 1:
			return int(binary.BigEndian.Uint16(f.Payload[8:])), nil
		}
	}
}
