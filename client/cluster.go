package client

import (
	"bufio"
	"context"
	"errors"
	"net"
	"strings"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/core/search"
	"github.com/isotone/isotone/internal/reply"
)

// This file ensures that a client uses only one cluster (I10).
//
// A connection leads to one process, and a process belongs to one cluster for life. So the
// client asks for the cluster once on each connection, before it uses any answer from it. No
// request waits for that.

// fieldCluster starts the INFO line with the cluster's ID. The line has no ID while the node
// does not know it; nodes of older versions do not send the line.
const fieldCluster = "isotone_cluster_id:"

// clusterOf reads the answer to INFO. The ID is 0 if the node does not know it yet.
func clusterOf(info string) (id isotone.ClusterID, told bool, err error) {
	for line := range strings.SplitSeq(info, "\r\n") {
		text, ok := strings.CutPrefix(line, fieldCluster)
		switch {
		case !ok:
			continue
		case text == "":
			return 0, true, nil
		}
		if id, err = isotone.ParseClusterID(text); err != nil {
			return 0, true, reply.Malformed("%.60q", line)
		}
		return id, true, nil
	}
	return 0, false, nil
}

// handshake authenticates the client on a new connection and asks the node for its cluster,
// together with a command that is harmless in any cluster. It reads the command's answer only if
// the cluster is the right one.
func (c *Client) handshake(ctx context.Context, conn net.Conn, read *bufio.Reader, addr string, command ...string) (v reply.Value, err error) {
	if err := c.greet(ctx, conn, read, addr, command...); err != nil {
		return v, err
	}
	err = within(ctx, conn, func() error {
		v, err = readReply(read)
		return err
	})
	return v, refusedClient(err)
}

// greet is handshake without reading the command's answer.
func (c *Client) greet(ctx context.Context, conn net.Conn, read *bufio.Reader, addr string, command ...string) error {
	first, err := c.authentication(ctx, conn)
	if err != nil {
		return refusedClient(err)
	}
	err = within(ctx, conn, func() error {
		if _, err := conn.Write(appendCommand(appendCommand(first, "INFO", "cluster"), command...)); err != nil {
			return err
		}
		if first != nil {
			if err := readAuthenticated(read); err != nil {
				return err
			}
		}
		info, err := readReply(read)
		if err != nil {
			return err
		}
		return c.checkCluster(addr, string(info.Text))
	})
	return refusedClient(err)
}

// checkCluster returns an error unless the INFO of a node names the right cluster. Without
// Options.Cluster, the first node that reports its cluster pins it.
func (c *Client) checkCluster(addr, info string) error {
	id, told, err := clusterOf(info)
	switch {
	case err != nil:
		return err
	case !told && c.opt.Cluster == 0:
		return nil
	case !told:
		return c.reject(addr, isotone.Errorf(isotone.CodeWrongCluster, "%s does not report its cluster, want %s", addr, c.opt.Cluster))
	case id == 0:
		// Its cluster is still being formed, so its ID is yet unknown.
		return isotone.Errorf(isotone.CodeNoLeader, "the node does not know its cluster yet")
	}
	if c.pin.CompareAndSwap(0, uint64(id)) {
		return nil
	}
	if pin := c.Cluster(); pin != id {
		return c.reject(addr, isotone.Errorf(isotone.CodeWrongCluster, "%s belongs to cluster %s, want %s", addr, id, pin))
	}
	return nil
}

// Cluster returns the cluster that the client is pinned to: that of Options.Cluster, or of
// the first node that reported one; 0 until then. It never changes after that.
func (c *Client) Cluster() isotone.ClusterID { return isotone.ClusterID(c.pin.Load()) }

// reject calls Hooks.Rejected for an answer that is not used, and returns err.
func (c *Client) reject(addr string, err *isotone.Error) error {
	if c.opt.Hooks.Rejected != nil {
		c.opt.Hooks.Rejected(addr, err)
	}
	return err
}

// report sends the outcome of an exchange with a node to the router.
func (c *Client) report(addr string, err error) {
	c.post(func(r *router) { r.reported(r.host(addr), err) })
}

// reported handles the outcome of an exchange with a host. If every reachable host is
// foreign, calls that time out fail with the error of one of them. If those that matter refuse
// the client, calls fail at once.
func (r *router) reported(h *host, err error) {
	defer r.refuse()
	var refusal *isotone.Error
	var refused refusedError
	outcome := search.Ours
	switch {
	case errors.As(err, &refused):
		outcome, h.why = search.Refuses, refused.why
	case err != nil && !errors.As(err, &refusal):
		outcome = search.Unreachable
	case err != nil && refusal.Code == isotone.CodeWrongCluster:
		outcome, h.why = search.Foreign, refusal
	}
	r.search.Reported(h.addr, outcome, r.c.now())
	var why *isotone.Error
	for _, h := range r.hosts {
		switch r.search.Outcome(h.addr) {
		case search.Ours, search.Refuses:
			r.c.foreign.Store(nil)
			return
		case search.Foreign:
			why = h.why
		}
	}
	r.c.foreign.Store(why)
}

// refuse fails the calls that wait for connections which the nodes refuse to this client, and
// later ones until that has changed.
func (r *router) refuse() {
	for _, p := range []*pool{r.c.stamps, r.c.ahead, r.c.ids} {
		if why, known := r.refusal(p); known {
			p.refuse(why)
		}
	}
	if why, known := r.refusalOf(r.search.Members(), r.c.timelines.isReached(), useLines); known {
		r.c.timelines.refuse(why)
	}
}

// refusal returns why there can be no connection for a pool: the leader refuses this client or,
// while none is known and for IDs, every node that answers does. It reports false while that is
// not known.
func (r *router) refusal(p *pool) (why *isotone.Error, known bool) {
	addrs := r.search.Known()
	switch {
	case p == r.c.ids:
		addrs = r.search.Members()
	case r.search.Leader() != "":
		addrs = []string{r.search.Leader()}
	}
	return r.refusalOf(addrs, len(r.conns(p)) > 0, p.use())
}

// refusalOf is refusal for connections to any of the addresses, unless there is one.
func (r *router) refusalOf(addrs []string, isConnected bool, u search.Use) (why *isotone.Error, known bool) {
	if isConnected {
		return nil, true
	}
	known = true
	for _, addr := range addrs {
		h, outcome := r.hosts[addr], r.search.Outcome(addr)
		switch {
		case h == nil || outcome == search.Unreachable && (r.search.Asking(addr) || h.dialing[u] > 0):
			known = false
		case outcome == search.Ours || outcome == search.Foreign:
			return nil, true
		case outcome == search.Refuses:
			why = h.why
		}
	}
	return why, known
}
