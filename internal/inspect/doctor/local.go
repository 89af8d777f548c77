package doctor

import (
	"fmt"
	"maps"
	"net"
	"slices"
	"strings"
	"time"
)

// Limits of the checks of a machine.
const (
	// A data directory has a few megabytes: the log between two snapshots, twice.
	freeWarning, freeProblem   = 1 << 30, 64 << 20
	freeFilesProblem           = 16
	syncWarning, syncProblem   = 10 * time.Millisecond, 100 * time.Millisecond
	expiryWarning              = 30 * 24 * time.Hour
	clockErrorWarning          = 100 * time.Millisecond
	aheadWarning               = 3 * time.Second // the Date of an answer has whole seconds
	filesWarning, filesProblem = 8192, 256
	backlogWarning             = 1024
	// A node takes some ten megabytes, and more with many connections.
	memoryWarning, memoryProblem = 256 << 20, 64 << 20
)

// local judges the machine of a node.
func (j *findings) local(m *Measurements) {
	l := m.Local
	for _, text := range l.Settings.Misspelled {
		j.add(Warning, "settings", "environment", text, "rename the variable, or unset it")
	}
	j.disk(&l.Settings, &l.Disk)
	j.clock(&l.Clock)
	j.files(m.At, l)
	j.localTrust(m)
	j.limits(&l.Limits, l.Settings.Loops)
	runs := l.runs()
	for i := range l.Listeners {
		j.listener(&l.Listeners[i], l.Settings.NodeID, runs)
	}
	j.names(l.Names)
	j.addresses(l, runs)
	if m.Cluster == nil {
		j.founders(l)
	}
}

// runs reports whether the node of the settings is running on this machine.
func (l *Local) runs() bool {
	return slices.ContainsFunc(l.Listeners, func(n Listener) bool { return n.Owner == l.Settings.NodeID || n.Waiting != "" })
}

func (j *findings) disk(s *Settings, d *Disk) {
	const check = "disk"
	dataDir := s.DataDir
	switch {
	case d.Error != "":
		j.add(Problem, check, dataDir, d.Error, "create the directory for the user that runs the node, or set DATA_DIR to one that this user may write")
		return
	case d.Missing:
		j.ok(check, dataDir, "does not exist yet; the first start creates it (the checks below are of %s)", d.Dir)
	case s.DataError != "":
		j.add(Problem, check, dataDir, s.DataError, "a node does not start from this directory: follow the error")
	case s.DataNode != 0 && s.DataNode != s.NodeID:
		j.add(Problem, check, dataDir, fmt.Sprintf("has the data of node %d, and this is node %d", s.DataNode, s.NodeID),
			fmt.Sprintf("set NODE_ID=%d, or set DATA_DIR to the directory of node %d; a node may only ever use its own", s.DataNode, s.NodeID))
	case d.HasData:
		j.ok(check, dataDir, "has the data of a node")
	default:
		j.ok(check, dataDir, "has no data yet")
	}
	free := fmt.Sprintf("%s free", size(d.Free))
	const doFree = "free some space on this file system; a node stops when a write fails"
	switch {
	case !d.FreeKnown:
	case d.Free < freeProblem:
		j.add(Problem, check, "space", free, doFree)
	case d.Free < freeWarning:
		j.add(Warning, check, "space", free, doFree)
	case d.FreeFilesKnown && d.FreeFiles < freeFilesProblem:
		j.add(Problem, check, "space", fmt.Sprintf("%s, but only %d files more can be created", free, d.FreeFiles), "delete files on this file system")
	default:
		j.ok(check, "space", "%s", free)
	}
	j.sync(d)
}

// sync judges the speed of fdatasync. No request waits for it, but reservations, elections and
// changes of membership do.
func (j *findings) sync(d *Disk) {
	const check, subject = "disk", "fdatasync"
	const do = "give DATA_DIR a disk of its own, local and not shared with other writers; slow syncs delay elections and let timestamps lag the clock"
	found := fmt.Sprintf("%d synced writes: p50 %s, p99 %s", d.Writes, millis(d.P50), millis(d.P99))
	switch {
	case d.WriteError != "" && d.Writes == 0:
		j.add(Problem, check, subject, d.WriteError, "check that the user that runs the node may write to this directory, and that the disk answers")
	case d.WriteError != "":
		j.add(Problem, check, subject, found+"; then: "+d.WriteError, do)
	case d.P99 > syncProblem:
		j.add(Problem, check, subject, found, do)
	case d.P99 > syncWarning:
		j.add(Warning, check, subject, found, do)
	default:
		j.ok(check, subject, "%s", found)
	}
}

func (j *findings) clock(c *Clock) {
	const check, do = "clock", "synchronize the clock, for example with chrony or systemd-timesyncd (see: chronyc tracking, timedatectl)"
	switch {
	case !c.Known:
		j.ok(check, "this machine", "the system does not tell whether it is synchronized")
	case !c.Synchronized:
		j.add(Warning, check, "this machine", "the clock is not synchronized, as the kernel knows it (adjtimex)", do)
	case c.ErrorMax > clockErrorWarning:
		j.add(Warning, check, "this machine", fmt.Sprintf("the clock is synchronized, but may be off by %s", millis(c.ErrorMax)), "use nearer or more time servers")
	default:
		j.ok(check, "this machine", "synchronized; off by %s at most", millis(c.ErrorMax))
	}
	switch {
	case !c.AheadKnown:
	case c.Ahead.Abs() > aheadWarning:
		side := "ahead of"
		if c.Ahead < 0 {
			side = "behind"
		}
		j.add(Warning, check, "this machine", fmt.Sprintf("the clock is about %v %s those of the nodes that answer", c.Ahead.Abs().Round(time.Second), side), do)
	default:
		j.ok(check, "this machine", "agrees with the nodes that answer, to some seconds")
	}
}

// files judges the certificate in the files of the settings.
func (j *findings) files(at time.Time, l *Local) {
	switch c := &l.Files; {
	case !c.Exists && !c.Set && c.Error == "":
		j.ok("certificate", c.File, "does not exist yet; the first start creates a self-signed one")
	default:
		j.certificate(at, c.File, c)
	}
	if l.ClientCA.Set {
		j.certificate(at, "TLS_CLIENT_CA", &l.ClientCA)
	}
}

// certificate judges one certificate.
func (j *findings) certificate(at time.Time, subject string, c *Certificate) {
	const check = "certificate"
	left := c.NotAfter.Sub(at)
	const doRenew = "replace the files; a running node reads them again by itself"
	switch {
	case c.Error != "":
		j.add(Problem, check, subject, c.Error, "name files with a certificate and the key that belongs to it (TLS_CERT, TLS_KEY, TLS_CLIENT_CA), readable by the user that runs the node")
		return
	case left <= 0:
		j.add(Problem, check, subject, fmt.Sprintf("ended on %s", day(c.NotAfter)), doRenew)
	case at.Before(c.NotBefore):
		j.add(Problem, check, subject, fmt.Sprintf("begins on %s only", day(c.NotBefore)), "check this machine's clock, or "+doRenew)
	case left < expiryWarning:
		j.add(Warning, check, subject, fmt.Sprintf("ends on %s, in %d days", day(c.NotAfter), int(left.Hours()/24)), doRenew)
	default:
		j.ok(check, subject, "valid until %s", day(c.NotAfter))
	}
	switch {
	case c.Host == "":
	case c.HostError != "":
		j.add(Warning, check, subject, fmt.Sprintf("is not for %s, the host that clients are told: %s", c.Host, c.HostError),
			"issue a certificate with that name, or set ADVERTISE_ADDR to a name that it has")
	default:
		j.ok(check, subject, "is for %s", c.Host)
	}
	if c.KeyReadable {
		j.add(Warning, check, subject, "others than its owner may read the file of the key", "chmod 600 the file of the key")
	}
}

func (j *findings) limits(l *Limits, loops int) {
	const check = "limits"
	const doFiles = "raise the limit of open files (LimitNOFILE of systemd, nofile in limits.conf, --ulimit of the container); each client connection takes one"
	switch found := fmt.Sprintf("%d files may be open, each client connection takes one", l.Files); {
	case l.Files == 0:
	case l.Files < filesProblem:
		j.add(Problem, check, "RLIMIT_NOFILE", found, doFiles)
	case l.Files < filesWarning:
		j.add(Warning, check, "RLIMIT_NOFILE", found, doFiles)
	default:
		j.ok(check, "RLIMIT_NOFILE", "%s", found)
	}
	switch {
	case l.Backlog == 0:
	case l.Backlog < backlogWarning:
		j.add(Warning, check, "net.core.somaxconn", fmt.Sprintf("%d connections may wait to be accepted", l.Backlog),
			"sysctl -w net.core.somaxconn=4096, so that no connection is lost when many clients reconnect at once")
	default:
		j.ok(check, "net.core.somaxconn", "%d", l.Backlog)
	}
	if loops > l.Processors {
		j.add(Warning, check, "LOOPS", fmt.Sprintf("%d loops on %d processors", loops, l.Processors), "set LOOPS to the number of processors or less; 0 chooses it")
	} else {
		j.ok(check, "LOOPS", "%s on %s", count(loops, "loop"), count(l.Processors, "processor"))
	}
	const doMemory = "give the node more memory, or move other processes away: one that is killed for lack of memory costs an election"
	switch found := size(l.Memory) + " available"; {
	case l.Memory == 0:
	case l.Memory < memoryProblem:
		j.add(Problem, check, "memory", found, doMemory)
	case l.Memory < memoryWarning:
		j.add(Warning, check, "memory", found, doMemory)
	default:
		j.ok(check, "memory", "%s", found)
	}
}

// listener judges one address to listen on; runs says that the node itself is running.
func (j *findings) listener(l *Listener, self uint64, runs bool) {
	const check = "port"
	subject := fmt.Sprintf("%s, %s", l.Setting, l.Network)
	doOther := fmt.Sprintf("stop the other process (ss -lp shows it), or set %s to another port", l.Setting)
	switch {
	case port(l.Addr) == "0":
		j.ok(check, subject, "%s: any free port", l.Addr)
	case l.Error != "":
		j.add(Problem, check, subject, fmt.Sprintf("%s: %s", l.Addr, l.Error), fmt.Sprintf("set %s to an address of this machine and a port that the user may bind", l.Setting))
	case l.Free && runs:
		j.add(Warning, check, subject, fmt.Sprintf("%s is free, although this node is running", l.Addr), "run this command with the settings of the running node")
	case l.Free:
		j.ok(check, subject, "%s is free", l.Addr)
	case l.Waiting != "":
		j.add(Warning, check, subject, fmt.Sprintf("%s is used by a node that waits: %s", l.Addr, l.Waiting), "let it join: isotone member add, or isotone member replace")
	case l.Owner != 0 && l.Owner != self:
		j.add(Problem, check, subject, fmt.Sprintf("%s is used by node %d, these are the settings of node %d", l.Addr, l.Owner, self), doOther)
	case runs:
		j.ok(check, subject, "%s is used by this node, which is running", l.Addr)
	case l.Optional:
		j.add(Warning, check, subject, fmt.Sprintf("%s is used by another process; the node goes on without it", l.Addr), doOther)
	default:
		j.add(Problem, check, subject, fmt.Sprintf("%s is used by another process", l.Addr), doOther)
	}
}

func (j *findings) names(names []Name) {
	for _, n := range names {
		if n.Error != "" {
			j.add(Problem, "name", n.Host, fmt.Sprintf("%s: %s", n.Setting, n.Error), "correct the name, or add it to the DNS or to /etc/hosts of this machine")
			continue
		}
		j.ok("name", n.Host, "%s: %s", n.Setting, strings.Join(n.Addrs, ", "))
	}
}

// addresses judges the addresses that others are told.
func (j *findings) addresses(l *Local, runs bool) {
	const check = "address"
	s := &l.Settings
	remote := false
	for id, addr := range s.Peers {
		remote = remote || id != s.NodeID && !loopback(addr)
	}
	for _, addr := range s.Join {
		remote = remote || !loopback(addr)
	}
	const doAdvertise = "set ADVERTISE_ADDR to host:port as clients reach this node"
	switch {
	case unspecified(s.AdvertiseAddr):
		j.add(Problem, check, "ADVERTISE_ADDR", fmt.Sprintf("%s is no address that a client can connect to", s.AdvertiseAddr), doAdvertise)
	case remote && loopback(s.AdvertiseAddr):
		j.add(Problem, check, "ADVERTISE_ADDR", fmt.Sprintf("other hosts are told %s, which is their own machine to them", s.AdvertiseAddr), doAdvertise)
	case l.Advertised != nil && l.Advertised.Error != "":
		j.add(Problem, check, "ADVERTISE_ADDR", fmt.Sprintf("%s does not lead to this node: %s", s.AdvertiseAddr, l.Advertised.Error), doAdvertise+", and check the firewall")
	case l.Advertised != nil:
		j.ok(check, "ADVERTISE_ADDR", "%s can be reached", s.AdvertiseAddr)
	default:
		j.ok(check, "ADVERTISE_ADDR", "%s; whether it can be reached shows when the node runs", s.AdvertiseAddr)
	}
	own := s.Peers[s.NodeID]
	switch {
	case remote && loopback(s.RaftAddr):
		j.add(Problem, check, "RAFT_ADDR", fmt.Sprintf("the other members cannot reach %s", s.RaftAddr), "set RAFT_ADDR to an address of this machine that they reach, such as 0.0.0.0:60001")
	case own != "" && port(own) != port(s.RaftAddr) && port(s.RaftAddr) != "0":
		j.add(Warning, check, "RAFT_ADDR", fmt.Sprintf("this node listens on %s, and PEERS tells the others %s", s.RaftAddr, own), "use the same port, unless a proxy or NAT stands between them")
	default:
		j.ok(check, "RAFT_ADDR", "%s", s.RaftAddr)
	}
}

// founders judges whether the other nodes in PEERS can be reached before there is a cluster.
func (j *findings) founders(l *Local) {
	for _, d := range l.Peers {
		if d.Error != "" {
			j.add(Warning, "peer", node(d.NodeID), fmt.Sprintf("%s cannot be reached: %s", d.Addr, d.Error), "start it; if it runs, check the address in PEERS and the firewall")
			continue
		}
		j.ok("peer", node(d.NodeID), "%s can be reached", d.Addr)
	}
}

// peersSetting compares PEERS with the members of the cluster.
func (j *findings) peersSetting(s *Settings, members map[uint64]string) {
	if _, isMember := members[s.NodeID]; !isMember && len(members) > 0 {
		j.add(Problem, "peers", "NODE_ID", fmt.Sprintf("node %d is no member of this cluster", s.NodeID),
			fmt.Sprintf("isotone member add %d PEER_ADDR, then start this node with JOIN and an empty data directory; or correct NODE_ID", s.NodeID))
	}
	if len(s.Peers) < 2 || len(members) == 0 {
		return
	}
	var wrong []string
	for _, id := range slices.Sorted(maps.Keys(s.Peers)) {
		switch addr, isMember := members[id]; {
		case !isMember:
			wrong = append(wrong, fmt.Sprintf("node %d is no member", id))
		case addr != s.Peers[id] && addr != "":
			wrong = append(wrong, fmt.Sprintf("node %d is at %s", id, addr))
		}
	}
	for _, id := range slices.Sorted(maps.Keys(members)) {
		if s.Peers[id] == "" {
			wrong = append(wrong, fmt.Sprintf("node %d, at %s, is missing", id, members[id]))
		}
	}
	if len(wrong) > 0 {
		j.add(Warning, "peers", "PEERS", "differs from the members on record: "+strings.Join(wrong, "; "),
			"write the present members into PEERS on all machines; a member is dialed there if it does not answer at its address on record. If the record is wrong: isotone member update")
		return
	}
	j.ok("peers", "PEERS", "names the %d members at their present addresses", len(members))
}

// loopback reports whether only its own machine can reach an address.
func loopback(addr string) bool {
	host, _, _ := net.SplitHostPort(addr)
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

func unspecified(addr string) bool {
	host, _, _ := net.SplitHostPort(addr)
	ip := net.ParseIP(host)
	return host == "" || ip != nil && ip.IsUnspecified()
}

func port(addr string) string {
	_, p, _ := net.SplitHostPort(addr)
	return p
}

func day(t time.Time) string { return t.UTC().Format("2006-01-02") }

// millis formats a time in milliseconds.
func millis(d time.Duration) string {
	ms := float64(d) / float64(time.Millisecond)
	switch {
	case ms < 10:
		return fmt.Sprintf("%.2f ms", ms)
	default:
		return fmt.Sprintf("%.0f ms", ms)
	}
}

// size formats a number of bytes.
func size(bytes uint64) string {
	switch {
	case bytes >= 10<<30:
		return fmt.Sprintf("%d GiB", bytes>>30)
	case bytes >= 1<<30:
		return fmt.Sprintf("%.1f GiB", float64(bytes)/(1<<30))
	}
	return fmt.Sprintf("%d MiB", bytes>>20)
}
