package client

import (
	"bufio"
	"context"
	"errors"
	"net"
	"strings"

	"github.com/isotone/isotone"
)

// This file keeps a client to one cluster (I10).
//
// A connection leads to one process, and a process is of one cluster for as long as it
// lives. So a node is asked for its cluster once on each connection, before anything that
// comes on it is used; it costs no request its time.

// fieldCluster begins the line of INFO that has the ID. A node that does not know it yet has
// the line without an ID, and one of an older version, which tells none, has no such line.
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
			return 0, true, malformed("%.60q", line)
		}
		return id, true, nil
	}
	return 0, false, nil
}

// introduce begins the conversation with a node: it asks for its cluster, and in the same
// breath a command that does no harm in another one. Nothing of the answer to that is
// looked at unless the cluster is the right one.
func (c *Client) introduce(ctx context.Context, conn net.Conn, read *bufio.Reader, addr string, command ...string) (v value, err error) {
	err = within(ctx, conn, func() error {
		if _, err := conn.Write(appendCommand(appendCommand(nil, "INFO", "cluster"), command...)); err != nil {
			return err
		}
		info, err := readReply(read)
		if err != nil {
			return err
		}
		if err := c.meet(addr, info.text); err != nil {
			return err
		}
		v, err = readReply(read)
		return err
	})
	return v, err
}

// meet says by the INFO of a node why there is nothing to be had from it, or nil. The first
// node that tells its cluster pins it, unless the options do.
func (c *Client) meet(addr, info string) error {
	id, told, err := clusterOf(info)
	switch {
	case err != nil:
		return err
	case !told && c.opt.Cluster == 0:
		return nil
	case !told:
		return c.reject(addr, isotone.Errorf(isotone.CodeWrongCluster, "%s does not tell its cluster, want %s", addr, c.opt.Cluster))
	case id == 0:
		// Its cluster is only being made, and may turn out to be any.
		return isotone.Errorf(isotone.CodeNoLeader, "the node does not know its cluster yet")
	}
	if c.pin.CompareAndSwap(0, uint64(id)) {
		return nil
	}
	if pin := c.Cluster(); pin != id {
		return c.reject(addr, isotone.Errorf(isotone.CodeWrongCluster, "%s is of cluster %s, want %s", addr, id, pin))
	}
	return nil
}

// Cluster returns the cluster that the client is pinned to: that of Options.Cluster, or of
// the first node that told one; 0 until then. It never changes after that.
func (c *Client) Cluster() isotone.ClusterID { return isotone.ClusterID(c.pin.Load()) }

// reject tells the hooks of an answer that is not used, and returns why.
func (c *Client) reject(addr string, err *isotone.Error) error {
	if c.opt.Hooks.Rejected != nil {
		c.opt.Hooks.Rejected(addr, err)
	}
	return err
}

// hear tells the keeper how a conversation with a node went.
func (c *Client) hear(addr string, err error) {
	c.post(func(k *keeper) { k.heard(k.host(addr), err) })
}

// standing is what a host was last found to be.
type standing uint8

const (
	unheard standing = iota // it did not answer
	ours                    // or at least not known to be another's
	foreign                 // of another cluster
)

// heard takes note of how a conversation with a host went. Calls that wait in vain fail
// with what a foreign one has said, if there is none of the right cluster.
func (k *keeper) heard(h *host, err error) {
	var said *isotone.Error
	switch {
	case err != nil && !errors.As(err, &said):
		h.standing = unheard
	case err != nil && said.Code == isotone.CodeWrongCluster:
		h.standing, h.why = foreign, said
	default:
		h.standing = ours
	}
	var why *isotone.Error
	for _, h := range k.hosts {
		switch h.standing {
		case ours:
			k.c.foreign.Store(nil)
			return
		case foreign:
			why = h.why
		}
	}
	k.c.foreign.Store(why)
}
