package resp

import (
	"bytes"
	"cmp"
	"fmt"
	"net"
	"strconv"
	"strings"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/core/timeline"
	"github.com/isotone/isotone/internal/front"
)

// This file presents the members as a Redis cluster of one shard: the leader is its primary
// and owns all slots, the others are its replicas.

const slots = timeline.Slots

// node is a member as clients reach it.
type node struct {
	id   uint64
	host string
	port int
}

// redisID returns the name of a node in Redis: 40 hexadecimal digits.
func redisID(id uint64) string { return fmt.Sprintf("%040x", id) }

// addr returns the address as Redis writes it, without brackets.
func (n node) addr() string { return n.host + ":" + strconv.Itoa(n.port) }

func parseNode(id uint64, addr string) (n node, ok bool) {
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return n, false
	}
	number, err := strconv.ParseUint(port, 10, 16)
	if err != nil || host == "" || strings.ContainsAny(host, " \r\n,@") {
		return n, false
	}
	return node{id, host, int(number)}, true
}

// shardOf returns the leader, then the other members with a known address. It is empty
// while no leader is known.
func shardOf(status *front.Status) []node {
	if status.Leader == 0 {
		return nil
	}
	var shard []node
	for _, m := range status.Members {
		addr := m.Addr
		if m.NodeID == status.Leader {
			addr = cmp.Or(status.LeaderAddr, addr)
		}
		n, ok := parseNode(m.NodeID, addr)
		switch {
		case !ok:
		case n.id == status.Leader && len(shard) > 0:
			shard[0], n = n, shard[0]
			fallthrough
		default:
			shard = append(shard, n)
		}
	}
	if len(shard) == 0 || shard[0].id != status.Leader {
		return nil
	}
	return shard
}

// roleOf returns the role of this node in the words of Redis.
func roleOf(status *front.Status) string {
	if status.Leader == status.NodeID && status.Leader != 0 {
		return "master"
	}
	return "replica"
}

func (c *conn) runCluster(args [][]byte, r *reply) error {
	status := c.front.cfg.Backend.Status()
	sub, n := subcommand(args), len(args)
	switch {
	case sub == "INFO" && n == 2:
		r.text(clusterInfo(status))
		return nil
	case sub == "MYID" && n == 2:
		r.bulk(redisID(status.NodeID))
		return nil
	case sub == "MYSHARDID" && n == 2: // the shard is the cluster
		r.bulk(redisID(status.ClusterID))
		return nil
	case sub == "KEYSLOT" && n == 3:
		r.integer(int64(slotOf(args[2])))
		return nil
	case sub == "COUNTKEYSINSLOT" && n == 3:
		r.integer(0)
		return nil
	case sub == "GETKEYSINSLOT" && n == 4:
		r.array(0)
		return nil
	}
	var answer func(*reply, *front.Status, []node)
	switch {
	case sub == "SLOTS" && n == 2:
		answer = (*reply).clusterSlots
	case sub == "SHARDS" && n == 2:
		answer = (*reply).clusterShards
	case sub == "NODES" && n == 2:
		answer = (*reply).clusterNodes
	default:
		r.unknownSubcommand(args)
		return nil
	}
	shard := shardOf(status)
	if len(shard) == 0 {
		// Not an empty list: it would make clients forget the nodes that they know. After
		// an error they ask the next node.
		r.b = appendFault(r.b, isotone.ErrNoLeader)
		return nil
	}
	answer(r, status, shard)
	return nil
}

func (r *reply) clusterSlots(_ *front.Status, shard []node) {
	r.array(1)
	r.array(2 + len(shard))
	r.integer(0)
	r.integer(slots - 1)
	for _, n := range shard {
		r.array(4)
		r.bulk(n.host)
		r.integer(int64(n.port))
		r.bulk(redisID(n.id))
		r.array(0)
	}
}

func (r *reply) clusterShards(_ *front.Status, shard []node) {
	r.array(1)
	r.dict(2)
	r.bulk("slots")
	r.array(2)
	r.integer(0)
	r.integer(slots - 1)
	r.bulk("nodes")
	r.array(len(shard))
	for i, n := range shard {
		r.dict(7)
		r.bulk("id")
		r.bulk(redisID(n.id))
		r.bulk("port")
		r.integer(int64(n.port))
		r.bulk("ip")
		r.bulk(n.host)
		r.bulk("endpoint")
		r.bulk(n.host)
		r.bulk("role")
		r.bulk([]string{"master", "replica"}[min(i, 1)])
		r.bulk("replication-offset")
		r.integer(0)
		r.bulk("health")
		r.bulk("online")
	}
}

// clusterNodes has a line for each node. There is no cluster bus; its port is 0.
func (r *reply) clusterNodes(status *front.Status, shard []node) {
	var b strings.Builder
	for i, n := range shard {
		myself := ""
		if n.id == status.NodeID {
			myself = "myself,"
		}
		if i == 0 {
			fmt.Fprintf(&b, "%s %s@0 %smaster - 0 0 %d connected 0-%d\n", redisID(n.id), n.addr(), myself, status.Term, slots-1)
		} else {
			fmt.Fprintf(&b, "%s %s@0 %sslave %s 0 0 %d connected\n", redisID(n.id), n.addr(), myself, redisID(shard[0].id), status.Term)
		}
	}
	r.text(b.String())
}

func clusterInfo(status *front.Status) string {
	state, assigned := "fail", 0
	if len(shardOf(status)) > 0 {
		state, assigned = "ok", slots
	}
	return fmt.Sprintf("cluster_enabled:1\r\ncluster_state:%s\r\ncluster_slots_assigned:%d\r\ncluster_slots_ok:%[2]d\r\n"+
		"cluster_slots_pfail:0\r\ncluster_slots_fail:0\r\ncluster_known_nodes:%d\r\ncluster_size:1\r\n"+
		"cluster_current_epoch:%d\r\ncluster_my_epoch:%[4]d\r\n", state, assigned, len(status.Members), status.Term) + clusterIDLine(status) + "\r\n"
}

// fieldClusterID is the name of the field with the cluster's ID.
const fieldClusterID = "isotone_cluster_id"

// clusterIDLine returns the line with the cluster's ID in INFO and CLUSTER INFO. Its value is
// empty while the ID is not known yet.
func clusterIDLine(status *front.Status) string {
	if status.ClusterID == 0 {
		return fieldClusterID + ":"
	}
	return fieldClusterID + ":" + isotone.ClusterID(status.ClusterID).String()
}

// slotOf returns the slot of a key: that of the key, or of what is between its first braces if that is not empty.
func slotOf(key []byte) uint16 {
	if open := bytes.IndexByte(key, '{'); open >= 0 {
		if length := bytes.IndexByte(key[open+1:], '}'); length > 0 {
			key = key[open+1 : open+1+length]
		}
	}
	return timeline.Slot(key)
}
