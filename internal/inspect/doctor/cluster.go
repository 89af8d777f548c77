package doctor

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/isotone/isotone/internal/inspect/survey"
)

// Limits of the checks of a cluster.
const (
	// offsetWarning is a fifth of the default of CLOCK_JUMP_MAX_MS.
	offsetWarning = 100 * time.Millisecond
	// lagWarning is what a few seconds of reservations add to the log, lagProblem the log between
	// two snapshots: a member that lacks more needs a whole snapshot.
	lagWarning, lagProblem = 100, 4096
	// Shares of the limit of open files.
	filesUsedWarning, filesUsedProblem = 0.8, 0.95
	// workersWarning is the share of all worker IDs from which on they run short.
	workersWarning = 0.8
)

// cluster judges what the nodes say.
func (j *findings) cluster(m *Measurements) {
	c := m.Cluster
	switch {
	case c == nil && m.Refused != nil:
		j.add(Problem, "cluster", strings.Join(m.Endpoints, ","), "the nodes refuse the credentials: "+m.Refused.Message, m.Refused.Do)
		return
	case c == nil && len(m.Endpoints) > 0:
		j.add(Problem, "cluster", strings.Join(m.Endpoints, ","), "no node answers: "+m.Unanswered, "name the client address of a node that runs (--endpoint HOST:PORT), and check the firewall")
		return
	case c == nil:
		j.ok("cluster", "", "no node answers here yet, so only this machine was checked")
		return
	}
	j.answers(c)
	j.leader(c)
	j.quorum(c)
	j.members(c)
	if m.Local != nil {
		j.peersSetting(&m.Local.Settings, c.peerAddrs())
	}
	j.pairs(c)
	j.reach(c)
	j.clocks(c)
	j.intervals(c)
	j.timelines(c)
	j.locks(c)
	j.versions(c)
	j.lags(c)
	j.workers(m)
	j.trust(m)
	for i, v := range c.Report.Views {
		if p := &c.Nodes[i]; p.Served != nil {
			j.certificate(m.At, node(v.NodeID), p.Served)
		}
		j.openFiles(v.NodeID, &c.Nodes[i])
	}
}

// answers judges whether each member answers and is ready.
func (j *findings) answers(c *Cluster) {
	var clusters []string
	for i, v := range c.Report.Views {
		p := &c.Nodes[i]
		if v.State != nil && v.State.ClusterID != "" && !slices.Contains(clusters, v.State.ClusterID) {
			clusters = append(clusters, v.State.ClusterID)
		}
		switch {
		case v.Refused != nil:
			j.add(Problem, "ready", name(v), "refuses the credentials: "+v.Refused.Message, v.Refused.Do)
		case c.gone(v):
			j.add(Problem, "ready", name(v), "does not answer, and is connected with no member: "+v.Error, "start the node, and read its log; if its disk is lost: isotone member replace")
		case v.State == nil:
			j.add(Problem, "ready", name(v), "does not answer, but members are connected with it: "+v.Error, "check its client address (ADVERTISE_ADDR) and the firewall, and read its log")
		case v.State.Node.Forming:
			j.add(Warning, "ready", name(v), "the cluster is being formed: "+v.State.Node.NotReady, "start all nodes in PEERS, with the same list")
		case v.State.Node.Draining:
			j.add(Warning, "ready", name(v), "is draining: it is about to end", "wait for its restart, if it is to come back")
		case p.Ready == 0:
			j.add(Problem, "ready", name(v), "GET /ready: "+p.ReadyText, "look for a node that is overloaded or stopped (SIGSTOP)")
		case p.Ready != 200:
			j.add(Problem, "ready", name(v), "not ready: "+cmp.Or(v.State.Node.NotReady, p.ReadyText), "read the log of this node; the other checks may say why")
		default:
			j.ok("ready", name(v), "ready")
		}
	}
	for _, why := range c.Report.Strangers {
		j.add(Problem, "cluster", "", why, doName)
	}
	if len(clusters) > 1 {
		slices.Sort(clusters)
		j.add(Problem, "cluster", "", "the nodes belong to different clusters: "+strings.Join(clusters, ", "), doName)
	}
}

const doName = "name nodes of one cluster; correct ADVERTISE_ADDR if two clusters share an address"

func (j *findings) leader(c *Cluster) {
	r := c.Report
	switch {
	case r.Leader != nil:
		j.ok("leader", node(r.Leader.NodeID), "leads in term %d", r.Term)
	case c.forming():
	case len(c.silent()) > 0:
		j.add(Problem, "leader", "", "no leader is known, and these members do not answer at their peer addresses on record: "+strings.Join(c.silent(), ", "),
			"if their machines have other addresses now, write these into PEERS on all machines and restart the nodes, which needs no leader (docs/operations.md, new addresses); "+doStart)
	default:
		j.add(Problem, "leader", "", "no leader is known", doStart)
	}
}

const doStart = "start the members that do not answer: a leader needs the votes of a majority; if they are lost for good: docs/operations.md, disaster"

// silent returns the members whose peer address on record cannot be reached from here.
func (c *Cluster) silent() (list []string) {
	for i, v := range c.Report.Views {
		if d := c.Nodes[i].Peer; d != nil && d.Error != "" {
			list = append(list, fmt.Sprintf("%s at %s", name(v), d.Addr))
		}
	}
	return list
}

// forming reports whether the nodes that answer have no cluster yet.
func (c *Cluster) forming() bool {
	return !slices.ContainsFunc(c.Report.Views, func(v survey.View) bool { return v.State != nil && !v.State.Node.Forming })
}

// quorum judges how many failures the cluster survives.
func (j *findings) quorum(c *Cluster) {
	by := c.view()
	if by == nil || c.forming() {
		return
	}
	voters, alive := 0, 0
	for _, m := range by.Members {
		if m.Learner {
			continue
		}
		voters++
		if m.Self || m.Connected {
			alive++
		}
	}
	need := voters/2 + 1
	found := fmt.Sprintf("%d of %s connected, %d needed", alive, count(voters, "voter"), need)
	switch {
	case voters == 0:
	case alive < need:
		j.add(Problem, "quorum", "", found, "start the missing members; if they are lost for good: docs/operations.md, disaster")
	case voters == 1:
		j.add(Warning, "quorum", "", "one voter: no failure is survived, and no restart is without a pause", "add two nodes: isotone member add")
	case alive == need && alive < voters:
		j.add(Problem, "quorum", "", found+": the next failure stops the cluster", "bring the missing members back, or replace them: isotone member replace")
	case voters == 2:
		j.add(Warning, "quorum", "", "two voters: both are needed, no failure is survived", "add a node: isotone member add")
	case voters%2 == 0:
		j.add(Warning, "quorum", "", fmt.Sprintf("%s; %d voters survive no more failures than %d", found, voters, voters-1), "add or remove a node")
	default:
		j.ok("quorum", "", "%s", found)
	}
}

// gone reports whether neither this machine nor any member reaches a node. One finding is enough
// for that.
func (c *Cluster) gone(of survey.View) bool {
	if of.State != nil || of.Refused != nil || of.NodeID == 0 {
		return false
	}
	for _, v := range c.Report.Views {
		if v.State != nil && slices.ContainsFunc(v.State.Members, func(m survey.Member) bool { return m.NodeID == of.NodeID && m.Connected }) {
			return false
		}
	}
	return true
}

// members judges members that wait for something, as the leader has them on record.
func (j *findings) members(c *Cluster) {
	if c.Members == nil {
		return
	}
	for _, m := range c.Members.Members {
		giveUp := fmt.Sprintf("isotone member remove %d", m.NodeID)
		if m.Replaces != 0 {
			giveUp += " --replacement" // without it, a repetition removes the node itself
		}
		switch {
		case m.Incarnation == "":
			j.add(Warning, "member", node(m.NodeID), "was added, but has never connected",
				fmt.Sprintf("start it on an empty data directory: NODE_ID=%d RAFT_ADDR=%s JOIN=CLIENT_ADDRESS_OF_A_MEMBER isotone serve; or give it up: %s", m.NodeID, m.PeerAddr, giveUp))
		case m.Role == "learner" && m.Promote:
			j.add(Warning, "member", node(m.NodeID), fmt.Sprintf("becomes a voter when it has caught up; it lacks %d log entries", m.Lag), "wait, and look again")
		}
	}
}

// view returns the state document that knows the members best: the leader's, or else any.
func (c *Cluster) view() *survey.State {
	var any *survey.State
	for _, v := range c.Report.Views {
		switch {
		case v.State == nil:
		case c.Report.Leader != nil && v.NodeID == c.Report.Leader.NodeID:
			return v.State
		case any == nil || any.Term < v.State.Term:
			any = v.State
		}
	}
	return any
}

// peerAddrs returns the peer addresses on record by node ID.
func (c *Cluster) peerAddrs() map[uint64]string {
	addrs := map[uint64]string{}
	if s := c.view(); s != nil {
		for _, m := range s.Members {
			addrs[m.NodeID] = m.PeerAddr
		}
	}
	return addrs
}

// pairs judges the connections between all members, each as both ends see it.
func (j *findings) pairs(c *Cluster) {
	apart, checked := c.Apart()
	for _, pair := range slices.SortedFunc(maps.Keys(apart), func(a, b [2]uint64) int { return slices.Compare(a[:], b[:]) }) {
		j.add(Problem, "connection", fmt.Sprintf("nodes %d and %d", pair[0], pair[1]), fmt.Sprintf("not connected, as node %s says", joined(apart[pair])),
			"check that both run, that each reaches the other's peer address (isotone member list), and the firewall between them")
	}
	if len(apart) == 0 && checked > 0 {
		j.ok("connection", "all pairs", "%s connected", count(checked, "pair"))
	}
}

// Apart returns the pairs of members that are not connected, with the nodes that say so, and how
// many pairs were checked. Those of nodes that are gone are left out.
func (c *Cluster) Apart() (apart map[[2]uint64][]uint64, checked int) {
	apart = map[[2]uint64][]uint64{}
	seen := map[[2]uint64]bool{}
	for _, v := range c.Report.Views {
		if v.State == nil {
			continue
		}
		for _, m := range v.State.Members {
			if m.Self || m.NodeID == v.NodeID || slices.ContainsFunc(c.Report.Views, func(v survey.View) bool { return v.NodeID == m.NodeID && c.gone(v) }) {
				continue
			}
			pair := [2]uint64{min(v.NodeID, m.NodeID), max(v.NodeID, m.NodeID)}
			seen[pair] = true
			if !m.Connected {
				apart[pair] = append(apart[pair], v.NodeID)
			}
		}
	}
	return apart, len(seen)
}

// reach judges the connections from this machine. A peer address need not be open to it, as long
// as the members reach one another.
func (j *findings) reach(c *Cluster) {
	apart, _ := c.Apart()
	remote := false
	for _, addr := range c.peerAddrs() {
		remote = remote || addr != "" && !loopback(addr)
	}
	for i, v := range c.Report.Views {
		p := &c.Nodes[i]
		if c.gone(v) {
			continue
		}
		lonely := v.State == nil
		for pair := range apart {
			lonely = lonely || pair[0] == v.NodeID || pair[1] == v.NodeID
		}
		switch d := p.Client; {
		case d == nil:
		case remote && loopback(d.Addr):
			j.add(Problem, "reach", name(v), fmt.Sprintf("clients on other hosts are told %s, which is their own machine to them", d.Addr), "restart this node with ADVERTISE_ADDR set to host:port as clients reach it")
		case d.Error != "":
			j.add(Problem, "reach", name(v), fmt.Sprintf("its client address %s cannot be reached from here: %s", d.Addr, d.Error), "check ADVERTISE_ADDR of this node, and the firewall")
		default:
			j.ok("reach", name(v), "clients: %s", d.Addr)
		}
		switch d := p.Peer; {
		case d == nil:
		case d.Error == "":
			j.ok("reach", name(v), "peers: %s", d.Addr)
		case lonely:
			j.add(Problem, "reach", name(v), fmt.Sprintf("its peer address %s cannot be reached from here: %s", d.Addr, d.Error), "check that it is right (isotone member update corrects it; without a leader, PEERS on all machines), and the firewall")
		default:
			j.ok("reach", name(v), "peers: %s is closed to this machine, and open to the members", d.Addr)
		}
	}
}

// clocks judges the members' clocks, each against the median of all.
func (j *findings) clocks(c *Cluster) {
	const do = "synchronize the clock of this machine (chronyc tracking, timedatectl); see docs/operations.md, clocks"
	for _, v := range c.Report.Views {
		if v.State == nil {
			continue
		}
		clock := v.State.Clock
		offset := time.Duration(clamp(clock.OffsetFromMedianSeconds) * float64(time.Second))
		found := fmt.Sprintf("%s from the median of the members' clocks", signed(offset))
		switch {
		case clock.Exceeded && clock.SoleVoter:
			j.add(Problem, "clock", name(v), "its wall clock has jumped; timestamps follow the steady clock", "set the clock right; if it is right now, restart the node")
		case clock.Exceeded:
			j.add(Problem, "clock", name(v), found+": timestamps do not follow it", do)
		case !clock.OK:
			j.add(Problem, "clock", name(v), found+": it makes no IDs", do)
		case offset.Abs() > offsetWarning:
			j.add(Warning, "clock", name(v), found, do)
		case len(v.State.Members) > 1:
			j.ok("clock", name(v), "%s", found)
		}
	}
}

// clamp bounds a figure from another machine to a century, so that it fits a time.Duration.
func clamp(seconds float64) float64 {
	const century = 100 * 365 * 24 * 60 * 60
	if math.IsNaN(seconds) {
		return 0
	}
	return max(-century, min(century, seconds))
}

func (j *findings) versions(c *Cluster) {
	by := map[string][]uint64{}
	for _, v := range c.Report.Views {
		if v.State != nil {
			by[v.State.Version] = append(by[v.State.Version], v.NodeID)
		}
	}
	var list []string
	for _, version := range slices.Sorted(maps.Keys(by)) {
		list = append(list, fmt.Sprintf("%s (node %s)", cmp.Or(version, "unknown"), joined(by[version])))
	}
	if len(by) > 1 {
		j.add(Warning, "version", "", "the members run different versions: "+strings.Join(list, ", "), "finish the rolling upgrade; see docs/operations.md, upgrade")
	} else if len(by) == 1 {
		j.ok("version", "", "%s", list[0])
	}
	switch l := c.Levels; {
	case l == nil:
	case l.Next > l.Level:
		j.add(Warning, "version", "feature level", fmt.Sprintf("%d, and all members support %d: the upgrade is not finalized", l.Level, l.Next), "isotone upgrade finalize, once no older version is to be restored")
	case l.Level < l.Newest:
		j.add(Warning, "version", "feature level", fmt.Sprintf("%d of %d: node %s runs an older version, or is not connected", l.Level, l.Newest, joined(l.Missing)), "upgrade it")
	default:
		j.ok("version", "feature level", "%d, the newest", l.Level)
	}
}

// lags judges how far the members' logs are behind the leader's.
func (j *findings) lags(c *Cluster) {
	s := c.view()
	if s == nil {
		return
	}
	for _, m := range s.Members {
		switch {
		case m.LagEntries == nil || !m.Connected || m.Self:
		case *m.LagEntries > lagProblem && !m.Learner:
			j.add(Problem, "lag", node(m.NodeID), fmt.Sprintf("lacks %d log entries", *m.LagEntries), "look at its disk and network: it acknowledges entries more slowly than they come")
		case *m.LagEntries > lagWarning:
			j.add(Warning, "lag", node(m.NodeID), fmt.Sprintf("lacks %d log entries", *m.LagEntries), "look again in some seconds; if it grows, look at its disk and network")
		default:
			j.ok("lag", node(m.NodeID), "lacks %s", count64(*m.LagEntries, "log entry", "log entries"))
		}
	}
}

// workersGrace is how long a node may run before it has a worker ID, unless one was refused, which its readiness
// says. It asks for one as soon as there is a leader, and is ready before the answer.
const workersGrace = 10 * time.Second

// workers judges whether the members have the worker IDs that they need.
func (j *findings) workers(m *Measurements) {
	leased := 0
	for _, v := range m.Cluster.Report.Views {
		if v.State == nil || v.State.Node.Forming {
			continue
		}
		have := len(v.State.Workers)
		leased += have
		want := 1
		if m.Local != nil && v.NodeID == m.Local.Settings.NodeID {
			want = m.Local.Settings.Workers
		}
		switch {
		case have == 0 && v.State.Node.Role == "learner":
		case have == 0 && v.State.Node.Ready && v.State.Node.UptimeSeconds < workersGrace.Seconds():
			j.ok("workers", name(v), "started a moment ago, and has not leased a worker ID yet")
		case have == 0:
			j.add(Problem, "workers", name(v), "holds no worker ID, and so makes no IDs", "look at its readiness and its clock; if all worker IDs are taken, widen the worker bits for a new cluster, or set SNOWFLAKE_WORKERS lower on all members")
		case have < want:
			j.add(Warning, "workers", name(v), fmt.Sprintf("holds %d of %s that it needs", have, count(want, "worker ID")), "wait until leases of ended clients run out, or set SNOWFLAKE_WORKERS lower on all members")
		default:
			j.ok("workers", name(v), "holds %s", count(have, "worker ID"))
		}
	}
	if m.Local == nil || m.Local.Settings.WorkersMax == 0 {
		return
	}
	limit := m.Local.Settings.WorkersMax
	if float64(leased) > workersWarning*float64(limit) {
		j.add(Warning, "workers", "SNOWFLAKE_LAYOUT", fmt.Sprintf("the members hold %d of %d worker IDs; clients that lease some get few", leased, limit), "set SNOWFLAKE_WORKERS lower on all members")
	}
}

func (j *findings) openFiles(id uint64, p *NodeProbe) {
	if p.FilesMax == 0 {
		return
	}
	found := fmt.Sprintf("%d of %d files are open", p.FilesOpen, p.FilesMax)
	const do = "raise the limit of open files of this node, or have clients share connections"
	switch used := float64(p.FilesOpen) / float64(p.FilesMax); {
	case used > filesUsedProblem:
		j.add(Problem, "limits", node(id), found, do)
	case used > filesUsedWarning:
		j.add(Warning, "limits", node(id), found, do)
	default:
		j.ok("limits", node(id), "%s", found)
	}
}

// name is the subject for a member, by its address while its ID is unknown.
func name(v survey.View) string {
	if v.NodeID == 0 {
		return v.Addr
	}
	return node(v.NodeID)
}

func joined(ids []uint64) string {
	texts := make([]string, len(ids))
	for i, id := range ids {
		texts[i] = fmt.Sprint(id)
	}
	return strings.Join(texts, ", ")
}

func signed(d time.Duration) string {
	if d < 0 {
		return "-" + millis(-d)
	}
	return "+" + millis(d)
}

func count64(n uint64, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}
