package resp

import (
	"bytes"
	"cmp"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/core/timeline"
	"github.com/isotone/isotone/internal/front"
)

// This file presents the members as a Redis cluster: of one shard, whose primary is the leader and owns all slots, or of one for each
// node that owns timelines.

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

// shard is a primary and its replicas, with its slots: from the first to the last of each span.
type shard struct {
	nodes []node
	spans [][2]int
}

// shardsOf presents the members as shards: one, in which the leader is the primary and owns all slots; or, with ofTimelines, one for
// each node that owns the timelines of slots. The slots of nobody are the leader's then, which may have none, and the other nodes without slots are
// its replicas. There are none while nobody is known who could have all slots.
func shardsOf(status *front.Status, ofTimelines bool) []shard {
	members := membersOf(status)
	leader := func(n node) bool { return n.id == status.Leader && n.id != 0 }
	if !ofTimelines || status.SlotOwners == nil {
		if at := slices.IndexFunc(members, leader); at >= 0 {
			members[0], members[at] = members[at], members[0]
			return []shard{{members, [][2]int{{0, slots - 1}}}}
		}
		return nil
	}
	owns := func(n node) bool { return slices.Contains(status.SlotOwners, n.id) }
	at := slices.IndexFunc(members, leader)
	if at < 0 { // timelines go on without one
		at = slices.IndexFunc(members, owns)
	}
	if at < 0 {
		return nil
	}
	rest := members[at] // has what nobody has
	byNode := map[uint64]int{}
	var list []shard
	for _, n := range members {
		if n == rest || owns(n) {
			byNode[n.id] = len(list)
			list = append(list, shard{nodes: []node{n}})
		}
	}
	for i, owner := range status.SlotOwners {
		of, ok := byNode[owner]
		if !ok {
			of = byNode[rest.id]
		}
		list[of].add(i * slotsOfGroup)
	}
	for _, n := range members {
		if _, ok := byNode[n.id]; !ok {
			main := &list[byNode[rest.id]]
			main.nodes = append(main.nodes, n)
		}
	}
	return list
}

// slotsOfGroup is how many slots in a row a group of timelines has.
const slotsOfGroup = slots / timeline.SlotGroups

// add adds the slots of a group, from the first one.
func (s *shard) add(first int) {
	if last := len(s.spans) - 1; last >= 0 && s.spans[last][1]+1 == first {
		s.spans[last][1] += slotsOfGroup
		return
	}
	s.spans = append(s.spans, [2]int{first, first + slotsOfGroup - 1})
}

// membersOf returns the members with a known address.
func membersOf(status *front.Status) (list []node) {
	for _, m := range status.Members {
		addr := m.Addr
		if m.NodeID == status.Leader {
			addr = cmp.Or(status.LeaderAddr, addr)
		}
		if n, ok := parseNode(m.NodeID, addr); ok {
			list = append(list, n)
		}
	}
	return list
}

// shards presents the members as this front is set to.
func (f *Front) shards(status *front.Status) []shard {
	return shardsOf(status, f.cfg.SlotsOfTimelines)
}

// primaryOf returns the first node of the shard that a node is in, and how many replicas that has; not ok if it is in none.
func primaryOf(shards []shard, id uint64) (primary node, replicas int, ok bool) {
	for _, s := range shards {
		if slices.ContainsFunc(s.nodes, func(n node) bool { return n.id == id }) {
			return s.nodes[0], len(s.nodes) - 1, true
		}
	}
	return node{}, 0, false
}

// roleOf returns the role of this node in the words of Redis.
func (f *Front) roleOf(status *front.Status) string {
	primary, _, ok := primaryOf(f.shards(status), status.NodeID)
	if ok && primary.id == status.NodeID || status.Leader == status.NodeID && status.Leader != 0 {
		return "master"
	}
	return "replica"
}

func (c *conn) runCluster(args [][]byte, r *reply) error {
	status := c.front.cfg.Backend.Status()
	sub, n := subcommand(args), len(args)
	switch {
	case sub == "INFO" && n == 2:
		r.text(clusterInfo(status, c.front.shards(status)))
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
	var answer func(*reply, *front.Status, []shard)
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
	shards := c.front.shards(status)
	if shards == nil {
		// Not an empty list: it would make clients forget the nodes that they know. After
		// an error they ask the next node.
		r.b = appendFault(r.b, isotone.ErrNoLeader)
		return nil
	}
	answer(r, status, shards)
	return nil
}

func (r *reply) clusterSlots(_ *front.Status, shards []shard) {
	spans := 0
	for _, s := range shards {
		spans += len(s.spans)
	}
	r.array(spans)
	for _, s := range shards {
		for _, span := range s.spans {
			r.array(2 + len(s.nodes))
			r.integer(int64(span[0]))
			r.integer(int64(span[1]))
			for _, n := range s.nodes {
				r.array(4)
				r.bulk(n.host)
				r.integer(int64(n.port))
				r.bulk(redisID(n.id))
				r.array(0)
			}
		}
	}
}

func (r *reply) clusterShards(_ *front.Status, shards []shard) {
	r.array(len(shards))
	for _, s := range shards {
		r.dict(2)
		r.bulk("slots")
		r.array(2 * len(s.spans))
		for _, span := range s.spans {
			r.integer(int64(span[0]))
			r.integer(int64(span[1]))
		}
		r.bulk("nodes")
		r.array(len(s.nodes))
		for i, n := range s.nodes {
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
}

// clusterNodes has a line for each node. There is no cluster bus; its port is 0.
func (r *reply) clusterNodes(status *front.Status, shards []shard) {
	var b strings.Builder
	for _, s := range shards {
		for i, n := range s.nodes {
			myself := ""
			if n.id == status.NodeID {
				myself = "myself,"
			}
			if i > 0 {
				fmt.Fprintf(&b, "%s %s@0 %sslave %s 0 0 %d connected\n", redisID(n.id), n.addr(), myself, redisID(s.nodes[0].id), status.Term)
				continue
			}
			fmt.Fprintf(&b, "%s %s@0 %smaster - 0 0 %d connected", redisID(n.id), n.addr(), myself, status.Term)
			for _, span := range s.spans {
				fmt.Fprintf(&b, " %d-%d", span[0], span[1])
			}
			b.WriteByte('\n')
		}
	}
	r.text(b.String())
}

func clusterInfo(status *front.Status, shards []shard) string {
	state, assigned, size := "fail", 0, 0
	for _, s := range shards {
		size += min(len(s.spans), 1)
	}
	if len(shards) > 0 {
		state, assigned = "ok", slots
	}
	return fmt.Sprintf("cluster_enabled:1\r\ncluster_state:%s\r\ncluster_slots_assigned:%d\r\ncluster_slots_ok:%[2]d\r\n"+
		"cluster_slots_pfail:0\r\ncluster_slots_fail:0\r\ncluster_known_nodes:%d\r\ncluster_size:%d\r\n"+
		"cluster_current_epoch:%d\r\ncluster_my_epoch:%[5]d\r\n", state, assigned, len(status.Members), max(size, 1), status.Term) + clusterIDLine(status) + "\r\n"
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
