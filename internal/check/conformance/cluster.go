package conformance

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/snowflake"
)

// This file is what the nodes of a stage answer unless the scenario says otherwise.

const (
	clusterID = "5e1f0c3a9b2d4e71"
	foreignID = "0badc0de0badc0de"
	// unreported is the cluster of a node that reports none.
	unreported = "-"
)

// cluster is what all nodes of a stage share. It is guarded by stage.mu.
type cluster struct {
	leader  int   // an index; -1: none
	members []int // indexes
	last    isotone.Timestamp
	floors  bool   // whether floors are kept
	nextID  uint64 // of IDs
	issues  []*issue
	users   map[string]string // secrets by name; none: nodes want none
	grants  []*grant
	worker  int // of the next grant
	layout  snowflake.Layout
}

// firstWorker is the lowest worker that clients get.
const firstWorker = 300

func newCluster() cluster {
	return cluster{
		last: isotone.Timestamp{Time: 1795317567364593274, Index: 41}, nextID: 2124568557537722368, floors: true,
		users: map[string]string{}, worker: firstWorker, layout: snowflake.Twitter,
	}
}

// issue is what the answer to one request gave away.
type issue struct {
	request     *request
	first, last isotone.Timestamp // places in the order of all
	firstID     uint64
	count       uint64
	isID, is64  bool
	void        string // why no call may use it; "" if one may
}

// grant is a lease as it was told.
type grant struct {
	session  string
	worker   int
	lease    snowflake.Lease
	layout   snowflake.Layout
	released int64 // the first millisecond that the client gave back; 0 if none
	revoked  bool
}

// proper returns the answer of a node of Isotone.
func (s *stage) proper(r *request) answer {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := r.conn
	switch r.name {
	case "HELLO":
		return answer{bytes: s.hello(r)}
	case "AUTH":
		return answer{bytes: s.authenticate(c, r.args[1:])}
	case "QUIT":
		return answer{bytes: []byte("+OK\r\n"), end: true}
	}
	if len(s.users) > 0 && c.user == "" {
		return answer{bytes: faultLine("NOAUTH authenticate first")}
	}
	switch r.name {
	case "PING":
		return answer{bytes: []byte("+PONG\r\n")}
	case "INFO":
		c.checked = true
		return answer{bytes: bulk(info(c.node.cluster))}
	case "CLUSTER SLOTS":
		return answer{bytes: s.slots()}
	case "TS", "TS64":
		return s.issueStamps(r)
	case "SNOWFLAKE":
		return s.issueIDs(r)
	case "INTERVAL":
		return answer{bytes: s.tellClock(r)}
	case "WORKER LEASE":
		return answer{bytes: s.lease(r)}
	case "WORKER RELEASE":
		return answer{bytes: s.release(r)}
	case "SELECT", "READONLY", "READWRITE", "CLIENT SETINFO", "CLIENT SETNAME":
		return answer{bytes: []byte("+OK\r\n")}
	}
	return answer{bytes: faultLine("ERR unknown command")}
}

// info returns the text of INFO cluster.
func info(cluster string) string {
	text := "# Cluster\r\ncluster_enabled:1\r\n"
	if cluster != unreported {
		text += "isotone_cluster_id:" + cluster + "\r\n"
	}
	return text
}

// hello answers HELLO [2|3 [AUTH user secret] [SETNAME name]].
func (s *stage) hello(r *request) []byte {
	c := r.conn
	for i, arg := range r.args {
		if strings.EqualFold(arg, "AUTH") && i+2 < len(r.args) {
			if refusal := s.authenticate(c, r.args[i+1:i+3]); refusal[0] == '-' {
				return refusal
			}
		}
	}
	if len(s.users) > 0 && c.user == "" {
		return faultLine("NOAUTH authenticate first")
	}
	if len(r.args) > 1 {
		c.resp3 = r.args[1] == "3"
	}
	c.checked = true
	fields := [][]byte{bulk("server"), bulk("redis"), bulk("version"), bulk("7.2.0"), bulk("proto"), []byte(":2\r\n"), bulk("id"), []byte(":1\r\n"),
		bulk("mode"), bulk("cluster"), bulk("role"), bulk("master"), bulk("modules"), []byte("*0\r\n"), bulk("isotone_version"), bulk("kit")}
	if c.resp3 {
		fields[5] = []byte(":3\r\n")
	}
	if c.node.cluster != unreported {
		fields = append(fields, bulk("isotone_cluster_id"), bulk(c.node.cluster))
	}
	head := fmt.Sprintf("*%d\r\n", len(fields))
	if c.resp3 {
		head = fmt.Sprintf("%%%d\r\n", len(fields)/2)
	}
	return append([]byte(head), slices.Concat(fields...)...)
}

func (s *stage) authenticate(c *conn, args []string) []byte {
	name := "default"
	if len(args) == 2 {
		name = args[0]
	}
	secret, known := s.users[name]
	if right := len(args) > 0 && (args[len(args)-1] == secret || c.former != "" && args[len(args)-1] == c.former); !known || !right {
		return faultLine("WRONGPASS the name or the secret is wrong")
	}
	c.user = name
	return []byte("+OK\r\n")
}

func (s *stage) slots() []byte {
	if s.leader < 0 {
		return faultLine("CLUSTERDOWN no leader is known")
	}
	addrs := []string{s.nodes[s.leader].addr}
	for _, i := range s.members {
		if i != s.leader {
			addrs = append(addrs, s.nodes[i].addr)
		}
	}
	return slots(addrs...)
}

// refusal returns the answer of a node that does not lead, or nil.
func (s *stage) refusal(n *node) []byte {
	switch s.leader {
	case n.index:
		return nil
	case -1:
		return faultLine("CLUSTERDOWN no leader is known")
	}
	return faultLine("MOVED 0 " + s.nodes[s.leader].addr)
}

func (s *stage) issueStamps(r *request) answer {
	if refusal := s.refusal(r.conn.node); refusal != nil {
		return answer{bytes: refusal}
	}
	i := &issue{request: r, count: r.count(), is64: r.name == "TS64"}
	if floor, carried := r.floor(); carried && s.floors && s.last.Before(floor) {
		s.last = floor
	}
	i.first = isotone.Timestamp{Time: s.last.Time, Index: s.last.Index + 1}
	if i.is64 {
		first := isotone.Timestamp64From(i.first)
		i.first, i.last = first.Timestamp(), (first + isotone.Timestamp64(i.count-1)).Timestamp()
	} else {
		i.last = isotone.Timestamp{Time: i.first.Time, Index: i.first.Index + i.count - 1}
	}
	s.last = i.last
	s.issues = append(s.issues, i)
	return answer{bytes: stampOf(r, i.first), issued: i}
}

// count returns how many timestamps or IDs a request asks for.
func (r *request) count() uint64 {
	if len(r.args) < 2 {
		return 1
	}
	n, err := strconv.ParseUint(r.args[1], 10, 64)
	if err != nil || n == 0 {
		return 1
	}
	return n
}

// floor returns the floor that a request carries.
func (r *request) floor() (floor isotone.Timestamp, carried bool) {
	text := r.option("FLOOR")
	if text == "" {
		return floor, false
	}
	if floor, err := isotone.ParseTimestamp(text); err == nil {
		return floor, true
	}
	u, err := isotone.ParseTimestamp64(text)
	return u.Timestamp(), err == nil
}

func (s *stage) issueIDs(r *request) answer {
	i := &issue{request: r, count: r.count(), firstID: s.nextID, isID: true}
	s.nextID += i.count
	s.issues = append(s.issues, i)
	return answer{bytes: idsOf(r, i.firstID, i.count), issued: i}
}

// lease answers WORKER LEASE session from-ms length-ms [FIXED worker].
func (s *stage) lease(r *request) []byte {
	if refusal := s.refusal(r.conn.node); refusal != nil {
		return refusal
	}
	if len(r.args) < 5 {
		return faultLine("ERR wrong number of arguments")
	}
	session := r.args[2]
	from, _ := strconv.ParseInt(r.args[3], 10, 64)
	length, _ := strconv.ParseInt(r.args[4], 10, 64)
	for _, g := range s.grants {
		if g.session == session && g.released == 0 {
			if g.revoked {
				return faultLine("TRYAGAIN no_worker: the lease was revoked")
			}
			g.lease.End = max(g.lease.End, from+length)
			return g.tell()
		}
	}
	g := &grant{session: session, worker: s.worker, lease: snowflake.Lease{Start: from, End: from + length}, layout: s.layout}
	if fixed := r.option("FIXED"); fixed != "" {
		g.worker, _ = strconv.Atoi(fixed)
	} else {
		s.worker++
	}
	s.grants = append(s.grants, g)
	return g.tell()
}

// tell returns the answer with the lease.
func (g *grant) tell() []byte {
	return fmt.Appendf(nil, "*5\r\n:%d\r\n:%d\r\n:%d\r\n%s:%d\r\n", g.worker, g.lease.Start, g.lease.End, bulk(g.layout.String()), g.layout.Epoch)
}

// release answers WORKER RELEASE session worker start-ms next-ms.
func (s *stage) release(r *request) []byte {
	if refusal := s.refusal(r.conn.node); refusal != nil {
		return refusal
	}
	if len(r.args) != 6 {
		return faultLine("ERR wrong number of arguments")
	}
	next, _ := strconv.ParseInt(r.args[5], 10, 64)
	for _, g := range s.grants {
		if g.session == r.args[2] && strconv.Itoa(g.worker) == r.args[3] && strconv.FormatInt(g.lease.Start, 10) == r.args[4] && g.released == 0 {
			g.released = next
		}
	}
	return []byte("+OK\r\n")
}
