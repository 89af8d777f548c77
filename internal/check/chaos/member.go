//go:build linux

package chaos

import (
	"cmp"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/isotone/isotone/internal/check/await"
	"github.com/isotone/isotone/internal/check/ports"
)

// Joiner sets up a further node with the next ID, which joins the cluster by JOIN. It does not
// start it.
func (c *Cluster) Joiner() *Node {
	c.t.Helper()
	n := c.newNode(uint64(len(c.Nodes)+1), "", "")
	n.move()
	c.Nodes = append(c.Nodes, n)
	c.SetJoin(n)
	return n
}

// SetJoin has the next start of a node use JOIN, with the addresses of the others that run,
// in place of PEERS.
func (c *Cluster) SetJoin(n *Node) {
	var addrs []string
	for _, other := range c.Others(n) {
		if other.answers() {
			addrs = append(addrs, other.HTTPAddr)
		}
	}
	n.peers, n.join = "", strings.Join(addrs, ",")
}

// LoseDisk deletes the data directory of a node that is down. Its next start uses JOIN.
func (c *Cluster) LoseDisk(n *Node) {
	c.t.Helper()
	if err := os.RemoveAll(n.Dir); err != nil {
		c.t.Fatal(err)
	}
	c.SetJoin(n)
}

// Move gives a node other addresses from its next start on. PEERS stays as it is.
func (c *Cluster) Move(n *Node) {
	c.t.Helper()
	n.move()
}

// move gives the node two free addresses.
func (n *Node) move() {
	n.t.Helper()
	addrs, err := ports.Addrs(2)
	n.do(err)
	n.HTTPAddr, n.RaftAddr = addrs[0], addrs[1]
}

// Successor sets up a node that takes the place of n, which may run on: with the same ID, other
// addresses, an empty data directory, and JOIN. It does not start it.
func (c *Cluster) Successor(n *Node) *Node {
	c.t.Helper()
	c.SetJoin(n)
	join := strings.Join(append(strings.Split(n.join, ","), n.HTTPAddr), ",")
	next := c.Clone(n, fmt.Sprintf("%s.%d", n.Dir, len(n.runs)+1))
	next.join = strings.Trim(join, ",")
	for i := range c.Nodes {
		if c.Nodes[i] == n {
			c.Nodes[i] = next
			c.former = append(c.former, n)
		}
	}
	return next
}

// MemberView is one member in the answer to GET /members.
type MemberView struct {
	NodeID         uint64
	Addr, PeerAddr string
	Learner        bool
}

// Views returns the members, sorted.
func (m *Membership) Views() []MemberView {
	return slices.SortedFunc(slices.Values(m.Members), func(a, b MemberView) int { return cmp.Compare(a.NodeID, b.NodeID) })
}

// WaitMembers waits until all running nodes report the same members, which are exactly the
// nodes that run, at their addresses, all of them voters.
func (c *Cluster) WaitMembers() {
	c.t.Helper()
	var want []MemberView
	for _, n := range c.Nodes {
		if !n.Exited() {
			want = append(want, MemberView{NodeID: n.ID, Addr: n.HTTPAddr, PeerAddr: n.RaftAddr})
		}
	}
	await.Done(c.t, ReadyTimeout, func() (bool, string) {
		for _, n := range c.Nodes {
			if !n.answers() {
				continue
			}
			m, err := Members(n.HTTPAddr, readyTimeout)
			if err != nil {
				return false, fmt.Sprintf("node %d does not answer: %v", n.ID, err)
			}
			if got := m.Views(); !slices.Equal(got, want) {
				return false, fmt.Sprintf("node %d knows the members %+v, want %+v", n.ID, got, want)
			}
		}
		return true, ""
	})
}
