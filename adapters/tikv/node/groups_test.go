//go:build linux

package node_test

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/pingcap/kvproto/pkg/pdpb"
	"github.com/pingcap/kvproto/pkg/tsopb"
	"github.com/pingcap/log"
	pd "github.com/tikv/pd/client"
	"go.uber.org/zap/zapcore"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/client"
	"github.com/isotone/isotone/internal/check/await"
	"github.com/isotone/isotone/internal/check/chaos"
	"github.com/isotone/isotone/internal/check/cluster"
	"github.com/isotone/isotone/internal/front"
)

// grouped is a cluster with keyspace groups. Each node has a file of its own.
type grouped struct {
	*nodes
	dir string
}

func startGrouped(t *testing.T, file string) *grouped {
	t.Helper()
	c := &grouped{dir: t.TempDir()}
	c.nodes = prepare(t, 0, map[string]string{"TIMELINES": "1"})
	for _, n := range c.Nodes {
		n.Env["PD_KEYSPACE_GROUPS"] = c.file(n)
	}
	c.write(t, file, c.Nodes...)
	c.Start()
	c.WaitReady()
	return c
}

func (c *grouped) file(n *chaos.Node) string {
	return filepath.Join(c.dir, fmt.Sprintf("groups%d.json", n.ID))
}

// write replaces the files of nodes, as a whole.
func (c *grouped) write(t *testing.T, text string, nodes ...*chaos.Node) {
	t.Helper()
	for _, n := range nodes {
		if err := os.WriteFile(c.file(n)+".new", []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(c.file(n)+".new", c.file(n)); err != nil {
			t.Fatal(err)
		}
	}
}

// run runs a command of an operator, which may be repeated, until the leader has done it, and decodes what it prints.
func (c *grouped) run(t *testing.T, out any, args ...string) {
	t.Helper()
	args = append(args, "--yes", "--json", "--timeout", "1m", "--endpoint", strings.Join(c.Addrs(), ","))
	cmd := exec.CommandContext(testContext(t), c.Nodes[0].Binary, args...)
	cmd.Env = cluster.Inherited()
	text, err := cmd.Output()
	if err == nil && out != nil {
		err = json.Unmarshal(text, out)
	}
	if err != nil {
		t.Fatalf("isotone %v: %v: %s", args, err, text)
	}
}

// seal seals the timeline of a group, and returns what is above all of its timestamps.
func (c *grouped) seal(t *testing.T, group int) (bound string) {
	t.Helper()
	var sealed front.TimelineRecord
	c.run(t, &sealed, "timeline", "seal", name(group))
	return fmt.Sprint(sealed.Bound)
}

func name(group int) string { return fmt.Sprint("pd/", group) }

// owner returns the node that owns the timeline of a group.
func (c *grouped) owner(t *testing.T, group int) *chaos.Node {
	t.Helper()
	var r front.TimelineRecord
	await.Done(t, testWait, func() (bool, string) {
		c.run(t, &r, "timeline", "show", name(group))
		return r.NodeID != 0, fmt.Sprintf("timeline %v has no owner", r)
	})
	return c.Node(r.NodeID)
}

// move has another node own the timeline of a group, and returns it.
func (c *grouped) move(t *testing.T, group int, to *chaos.Node) *chaos.Node {
	t.Helper()
	var r front.TimelineRecord
	c.run(t, &r, "timeline", "show", name(group))
	c.run(t, nil, "group", "move", r.Group, fmt.Sprint(to.ID))
	return to
}

// keyspaceLoad asks for the timestamps of a keyspace all the time, by some clients.
type keyspaceLoad struct {
	order
	id uint32
}

func (k *keyspaceLoad) start(t *testing.T, c *grouped, work *sync.WaitGroup, stop <-chan struct{}) {
	t.Helper()
	log.SetLevel(zapcore.FatalLevel)
	for _, at := range c.Nodes[:2] {
		p, err := pd.NewClientWithKeyspace(t.Context(), k.id, []string{c.pd[at.ID]}, pd.SecurityOption{})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(p.Close)
		for range 4 {
			work.Go(func() {
				for {
					select {
					case <-stop:
						return
					default:
						_ = k.get(t, askPD(t.Context(), p)) // a caller repeats a call that has failed, as client-go does
					}
				}
			})
		}
	}
}

// goOn waits until each of the keyspaces has got further timestamps.
func goOn(t *testing.T, when string, all ...*keyspaceLoad) {
	t.Helper()
	for _, k := range all {
		_, from := k.state()
		await.Done(t, testWait, func() (bool, string) {
			_, got := k.state()
			return got > from+100, fmt.Sprintf("%s: keyspace %d has got %d timestamps more", when, k.id, got-from)
		})
	}
}

const oneGroup = `{"groups": [{"id": 3, "keyspaces": ["100-199"]}]}`

// Groups are split and merged, and their owners are killed, while clients go on.
func TestGroups_TimestampsGrowThroughSplitsMergesAndKills(t *testing.T) {
	c := startGrouped(t, oneGroup)
	c.run(t, nil, "timeline", "create", name(3))
	first, second, none := &keyspaceLoad{id: 100}, &keyspaceLoad{id: 150}, &keyspaceLoad{id: 7}
	all := []*keyspaceLoad{first, second, none}
	var work sync.WaitGroup
	stop := make(chan struct{})
	defer work.Wait()
	defer close(stop)
	for _, k := range all {
		k.start(t, c, &work, stop)
	}
	goOn(t, "at first", all...)
	followers := c.Others(c.WaitLeader())
	for _, to := range []*chaos.Node{followers[0], followers[1], c.WaitLeader(), followers[0]} {
		c.move(t, 3, to)
		goOn(t, "moved", all...)
	}

	// One node reads the file of the split late.
	c.write(t, `{"groups": [{"id": 3, "keyspaces": ["100-199"]}, {"id": 4, "keyspaces": ["100-149"]}, {"id": 5, "keyspaces": ["150-199"]}]}`, c.Others(followers[1])...)
	goOn(t, "with the file of the split", all...)
	bound := c.seal(t, 3)
	c.run(t, nil, "timeline", "create", name(4), name(5), "--above", bound)
	c.move(t, 4, followers[0])
	c.move(t, 5, followers[1])
	goOn(t, "split", first, none)
	c.write(t, `{"groups": [{"id": 4, "keyspaces": ["100-149"]}, {"id": 5, "keyspaces": ["150-199"]}]}`, c.Nodes...)
	goOn(t, "with the same file everywhere", all...)

	for _, killed := range []*chaos.Node{c.owner(t, 4), c.WaitLeader()} {
		killed.Kill()
		goOn(t, "without an owner or the leader", all...)
		killed.Start()
		goOn(t, "with it again", all...)
	}

	c.write(t, `{"groups": [{"id": 5, "keyspaces": ["150-199"]}, {"id": 4, "keyspaces": ["100-199"]}]}`, c.Nodes...)
	goOn(t, "with the file of the merge", all...)
	bound = c.seal(t, 5)
	c.waitSealed(t, c.Nodes[0], 150, 4)
	c.run(t, nil, "timeline", "floor", name(4), bound)
	goOn(t, "merged", all...)
}

// Whoever creates the groups of a split first loses nothing but time: the former group serves until it is sealed, and the others once they are above it.
func TestGroups_TwoNeverServeOneKeyspace(t *testing.T) {
	c := startGrouped(t, oneGroup)
	c.run(t, nil, "timeline", "create", name(3), name(4))
	leader := c.WaitLeader()
	others := c.Others(leader)
	c.move(t, 3, others[0])
	c.move(t, 4, others[1])
	k := &keyspaceLoad{id: 100}
	var work sync.WaitGroup
	stop := make(chan struct{})
	defer work.Wait()
	defer close(stop)
	k.start(t, c, &work, stop)
	goOn(t, "at first", k)
	c.write(t, `{"groups": [{"id": 3, "keyspaces": ["100-199"]}, {"id": 4, "keyspaces": ["100-199"]}]}`, leader, others[1])
	c.waitRead(t, leader, others[1])
	k.start(t, c, &work, stop) // these find the group when nodes have different files
	goOn(t, "with the file of the split at two nodes", k)
	bound := c.seal(t, 3)
	c.waitSealed(t, others[1], 100, 4)
	c.run(t, nil, "timeline", "floor", name(4), bound)
	goOn(t, "split", k)
}

// waitRead waits until nodes have read their files again.
func (c *grouped) waitRead(t *testing.T, nodes ...*chaos.Node) {
	t.Helper()
	for _, n := range nodes {
		await.Done(t, testWait, func() (bool, string) {
			text, err := os.ReadFile(filepath.Join(c.Dir, fmt.Sprintf("node%d.log", n.ID)))
			return strings.Contains(string(text), "the keyspace groups of PD have changed"), fmt.Sprintf("node %d has not read its file: %v", n.ID, err)
		})
	}
}

// waitSealed waits until a node has applied that the group of a keyspace is sealed: it says that the next one is not above that yet. Or that it
// is, if it got another owner in the meantime.
func (c *grouped) waitSealed(t *testing.T, n *chaos.Node, keyspace, next uint32) {
	t.Helper()
	tso := tsopb.NewTSOClient(dial(t, c.pd[n.ID]))
	await.Done(t, testWait, func() (bool, string) {
		found, err := tso.FindGroupByKeyspaceID(testContext(t), &tsopb.FindGroupByKeyspaceIDRequest{KeyspaceId: keyspace})
		refused := strings.Contains(found.GetHeader().GetError().GetMessage(), "is not above it yet")
		return refused || err == nil && found.GetKeyspaceGroup().GetId() == next, fmt.Sprint(found, err)
	})
}

// Clients that know nothing of groups are served the default order.
func TestGroups_ClientsWithoutAKeyspaceHaveTheDefaultOrder(t *testing.T) {
	c := startGrouped(t, oneGroup)
	own, err := client.New(testContext(t), c.Addrs()...)
	if err != nil {
		t.Fatal(err)
	}
	defer own.Close()
	ctx, p := testContext(t), newPDClient(t, pd.SecurityOption{}, c.follower())
	old := func() (isotone.Timestamp64, error) {
		stream, err := pdpb.NewPDClient(dial(t, c.pd[c.WaitLeader().ID])).Tso(ctx)
		if err == nil {
			err = stream.Send(&pdpb.TsoRequest{Header: &pdpb.RequestHeader{ClusterId: uint64(own.Cluster())}, Count: 1})
		}
		if err != nil {
			return 0, err
		}
		a, err := stream.Recv()
		return isotone.NewTimestamp64(uint64(a.GetTimestamp().GetPhysical()), uint64(a.GetTimestamp().GetLogical())), err
	}
	var o order
	for range 20 {
		for _, ask := range []func() (isotone.Timestamp64, error){askPD(ctx, p), old, func() (isotone.Timestamp64, error) { return own.Timestamp64(ctx) }} {
			await.Done(t, testWait, func() (bool, string) { // leaders may change
				err := o.get(t, ask)
				return err == nil, fmt.Sprint(err)
			})
		}
	}
	if _, _, err := p.GetMinTS(ctx); err == nil || !strings.Contains(err.Error(), "GetMinTS is not served here") {
		t.Errorf("GetMinTS: %v", err)
	}
}

func TestGroups_EveryNodeNamesTheOwner(t *testing.T) {
	c := startGrouped(t, oneGroup)
	c.run(t, nil, "timeline", "create", name(3))
	c.move(t, 3, c.Others(c.WaitLeader())[0])
	conns := map[uint64]*grpc.ClientConn{}
	for _, n := range c.Nodes {
		conns[n.ID] = dial(t, c.pd[n.ID])
	}
	// Nodes apply a grant one after the other, and leaders may change.
	await.Done(t, testWait, func() (bool, string) {
		owner, leader := c.owner(t, 3), c.WaitLeader()
		for _, n := range c.Nodes {
			for _, err := range []error{
				c.names(t, conns[n.ID], n, &tsopb.RequestHeader{KeyspaceId: 100}, 3, owner),
				c.names(t, conns[n.ID], n, &tsopb.RequestHeader{KeyspaceId: 200}, 0, leader),
			} {
				if err != nil {
					return false, fmt.Sprintf("node %d: %v", n.ID, err)
				}
			}
		}
		return owner != leader, "the leader owns the group"
	})
}

// names returns an error unless n says that owner serves the keyspace of a header, whose group has that ID, and answers for it if it is that itself.
func (c *grouped) names(t *testing.T, conn *grpc.ClientConn, n *chaos.Node, header *tsopb.RequestHeader, group uint32, owner *chaos.Node) error {
	ctx, tso := testContext(t), tsopb.NewTSOClient(conn)
	info, err := pdpb.NewPDClient(conn).GetClusterInfo(ctx, &pdpb.GetClusterInfoRequest{})
	if err != nil || len(info.GetTsoUrls()) != len(c.Nodes) || len(info.GetServiceModes()) != 1 || info.GetServiceModes()[0] != pdpb.ServiceMode_API_SVC_MODE {
		return fmt.Errorf("cluster info %v, %v", info, err)
	}
	found, err := tso.FindGroupByKeyspaceID(ctx, &tsopb.FindGroupByKeyspaceIDRequest{KeyspaceId: header.KeyspaceId})
	primary := ""
	for _, m := range found.GetKeyspaceGroup().GetMembers() {
		if m.GetIsPrimary() {
			primary += m.GetAddress()
		}
	}
	if err != nil || found.GetKeyspaceGroup().GetId() != group || primary != "http://"+c.pd[owner.ID] {
		return fmt.Errorf("%v, %v; want group %d at %s", found, err, group, c.pd[owner.ID])
	}
	stream, err := tso.Tso(ctx)
	if err != nil {
		return err
	}
	header.ClusterId = info.GetHeader().GetClusterId()
	if err := stream.Send(&tsopb.TsoRequest{Header: header, Count: 10}); err != nil {
		return err
	}
	switch a, err := stream.Recv(); {
	case n != owner && (status.Code(err) != codes.Unavailable || !strings.Contains(err.Error(), "is not leader")):
		return fmt.Errorf("%v, %v; want a hint to look for the owner", a, err)
	case n == owner && (err != nil || a.GetCount() != 10 || a.GetHeader().GetKeyspaceId() != header.KeyspaceId || a.GetHeader().GetKeyspaceGroupId() != group):
		return fmt.Errorf("%v, %v; want 10 timestamps of group %d", a, err, group)
	}
	return nil
}
