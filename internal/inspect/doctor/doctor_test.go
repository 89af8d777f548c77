package doctor_test

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/isotone/isotone/internal/front"
	"github.com/isotone/isotone/internal/inspect/doctor"
	"github.com/isotone/isotone/internal/inspect/survey"
)

var now = time.Date(2027, 1, 2, 3, 4, 5, 0, time.UTC)

// local is the machine of node 2, which runs, beside a healthy cluster of three.
func local() *doctor.Local {
	return &doctor.Local{
		Settings: doctor.Settings{
			NodeID: 2, DataDir: "/data", AdvertiseAddr: "10.0.0.2:8080", RaftAddr: "0.0.0.0:60001", Loops: 2, Workers: 3, WorkersMax: 1024,
			Peers: map[uint64]string{1: "10.0.0.1:60001", 2: "10.0.0.2:60001", 3: "10.0.0.3:60001"},
		},
		Disk:   doctor.Disk{Dir: "/data", HasData: true, Free: 20 << 30, FreeKnown: true, FreeFiles: 1e6, FreeFilesKnown: true, Writes: 200, P50: time.Millisecond, P99: 3 * time.Millisecond},
		Clock:  doctor.Clock{Known: true, Synchronized: true, ErrorMax: time.Millisecond, AheadKnown: true, Ahead: 300 * time.Millisecond},
		Files:  certificate(),
		Trust:  &doctor.Trust{Security: *security(2), ACLFile: "users.json", PeerCert: "node2.pem"},
		Limits: doctor.Limits{Files: 100_000, Backlog: 4096, Processors: 4, Memory: 4 << 30},
		Listeners: []doctor.Listener{
			{Setting: "HTTP_PORT", Network: "tcp", Addr: ":8080", InUse: true, Owner: 2},
			{Setting: "RAFT_ADDR", Network: "tcp", Addr: "0.0.0.0:60001", InUse: true},
			{Setting: "THRIFT_PORT", Network: "tcp", Addr: ":7609", InUse: true, Optional: true},
		},
		Names:      []doctor.Name{{Setting: "JOIN", Host: "node1", Addrs: []string{"10.0.0.1"}}},
		Advertised: &doctor.Dial{NodeID: 2, Addr: "10.0.0.2:8080"},
		Peers:      []doctor.Dial{{NodeID: 1, Addr: "10.0.0.1:60001"}},
	}
}

func certificate() doctor.Certificate {
	return doctor.Certificate{Exists: true, File: "/data/cert.pem", NotBefore: now.AddDate(0, -1, 0), NotAfter: now.AddDate(1, 0, 0), Host: "10.0.0.2"}
}

// cluster has three members; node 1 leads.
func cluster() *doctor.Cluster {
	c := &doctor.Cluster{
		Report:  &survey.Report{Leader: &survey.Leader{NodeID: 1}, Term: 7},
		Levels:  &front.Levels{Level: 3, Newest: 3, Next: 3},
		Members: &front.MemberList{},
	}
	for id := uint64(1); id <= 3; id++ {
		s := &survey.State{Version: "v1", ClusterID: "c", Term: 7, Clock: survey.Clock{OK: true}, Workers: make([]survey.Worker, 3)}
		s.Node = survey.Node{ID: id, Role: "follower", Ready: true, UptimeSeconds: 60}
		for peer := uint64(1); peer <= 3; peer++ {
			m := survey.Member{
				NodeID: peer, Addr: fmt.Sprintf("10.0.0.%d:8080", peer), PeerAddr: fmt.Sprintf("10.0.0.%d:60001", peer),
				Self: peer == id, Connected: true, Leader: peer == 1,
			}
			if id == 1 {
				m.LagEntries = new(uint64)
			}
			s.Members = append(s.Members, m)
		}
		served := certificate()
		c.Report.Views = append(c.Report.Views, survey.View{NodeID: id, Addr: fmt.Sprintf("http://10.0.0.%d:8080", id), State: s})
		c.Nodes = append(c.Nodes, doctor.NodeProbe{
			Client: &doctor.Dial{NodeID: id, Addr: fmt.Sprintf("10.0.0.%d:8080", id)}, Peer: &doctor.Dial{NodeID: id, Addr: fmt.Sprintf("10.0.0.%d:60001", id)},
			Ready: 200, Served: &served, FilesOpen: 20, FilesMax: 1000, Security: security(id),
		})
		c.Members.Members = append(c.Members.Members, front.MemberRecord{NodeID: id, Role: "voter", Incarnation: "i"})
	}
	return c
}

// stop makes node 3 one that is gone.
func stop(c *doctor.Cluster) {
	c.Report.Views[2].State, c.Report.Views[2].Error = nil, "refused"
	c.Nodes[2] = doctor.NodeProbe{Client: &doctor.Dial{NodeID: 3, Addr: "10.0.0.3:8080", Error: "refused"}, Peer: &doctor.Dial{NodeID: 3, Addr: "10.0.0.3:60001", Error: "refused"}}
	for _, v := range c.Report.Views[:2] {
		v.State.Members[2].Connected = false
	}
}

func TestJudge_FindsNothingWrongWithAHealthyCluster(t *testing.T) {
	for name, m := range map[string]*doctor.Measurements{
		"beside a node":          {At: now, Local: local(), Cluster: cluster()},
		"from another machine":   {At: now, Cluster: cluster(), Endpoints: []string{"10.0.0.1:8080"}},
		"before the first start": {At: now, Local: alone()},
	} {
		r := doctor.Judge(m)
		if r.Warnings+r.Problems > 0 || r.OK != len(r.Findings) || r.OK == 0 || r.Err() != nil {
			t.Errorf("%s: %d ok, %+v", name, r.OK, notOK(r))
		}
	}
}

// alone is a machine on which the first node is about to be started.
func alone() *doctor.Local {
	l := local()
	l.Advertised, l.Peers = nil, nil
	l.Disk.HasData, l.Disk.Missing, l.Disk.Dir = false, true, "/"
	l.Files = doctor.Certificate{File: "/data/cert.pem"}
	for i := range l.Listeners {
		l.Listeners[i].Owner, l.Listeners[i].InUse, l.Listeners[i].Free = 0, false, true
	}
	return l
}

func notOK(r *doctor.Report) (list []doctor.Finding) {
	for _, f := range r.Findings {
		if f.Status != doctor.OK {
			list = append(list, f)
		}
	}
	return list
}

// ailment is one thing that is wrong, and the one finding about it.
type ailment struct {
	name   string
	wrong  func(l *doctor.Local, c *doctor.Cluster)
	status doctor.Status
	check  string
	found  string
}

// state is the state document of a node.
func state(c *doctor.Cluster, id uint64) *survey.State { return c.Report.Views[id-1].State }

var ailments = []ailment{
	{"no directory", func(l *doctor.Local, _ *doctor.Cluster) { l.Disk.Error = "/data: permission denied" }, doctor.Problem, "disk", "permission denied"},
	{"little space", func(l *doctor.Local, _ *doctor.Cluster) { l.Disk.Free = 1<<30 - 1 }, doctor.Warning, "disk", "1023 MiB free"},
	{"no space", func(l *doctor.Local, _ *doctor.Cluster) { l.Disk.Free = 64<<20 - 1 }, doctor.Problem, "disk", "63 MiB free"},
	{"no files", func(l *doctor.Local, _ *doctor.Cluster) { l.Disk.FreeFiles = 3 }, doctor.Problem, "disk", "only 3 files more"},
	{"slow disk", func(l *doctor.Local, _ *doctor.Cluster) { l.Disk.P99 = 10*time.Millisecond + 1 }, doctor.Warning, "disk", "p99 10 ms"},
	{"very slow disk", func(l *doctor.Local, _ *doctor.Cluster) { l.Disk.P99 = 100*time.Millisecond + 1 }, doctor.Problem, "disk", "p99 100 ms"},
	{"failing disk", func(l *doctor.Local, _ *doctor.Cluster) { l.Disk.WriteError = "input/output error" }, doctor.Problem, "disk", "input/output error"},
	{"read-only disk", func(l *doctor.Local, _ *doctor.Cluster) { l.Disk.WriteError, l.Disk.Writes = "read-only", 0 }, doctor.Problem, "disk", "read-only"},

	{"no NTP", func(l *doctor.Local, _ *doctor.Cluster) { l.Clock.Synchronized = false }, doctor.Warning, "clock", "not synchronized"},
	{"vague NTP", func(l *doctor.Local, _ *doctor.Cluster) { l.Clock.ErrorMax = time.Second }, doctor.Warning, "clock", "1000 ms"},
	{"wrong clock here", func(l *doctor.Local, _ *doctor.Cluster) { l.Clock.Ahead = -time.Hour }, doctor.Warning, "clock", "1h0m0s behind"},

	{"certificate does not fit its key", func(l *doctor.Local, _ *doctor.Cluster) { l.Files.Error = "private key does not match" }, doctor.Problem, "certificate", "does not match"},
	{"certificate has ended", func(l *doctor.Local, _ *doctor.Cluster) { l.Files.NotAfter = now }, doctor.Problem, "certificate", "ended on 2027-01-02"},
	{"certificate ends soon", func(l *doctor.Local, _ *doctor.Cluster) { l.Files.NotAfter = now.AddDate(0, 0, 13) }, doctor.Warning, "certificate", "in 13 days"},
	{"certificate begins later", func(l *doctor.Local, _ *doctor.Cluster) { l.Files.NotBefore = now.Add(time.Hour) }, doctor.Problem, "certificate", "begins on"},
	{"certificate of another name", func(l *doctor.Local, _ *doctor.Cluster) { l.Files.HostError = "valid for x" }, doctor.Warning, "certificate", "is not for 10.0.0.2"},
	{"exposed key", func(l *doctor.Local, _ *doctor.Cluster) { l.Files.KeyReadable = true }, doctor.Warning, "certificate", "others"},
	{"missing certificate", func(l *doctor.Local, _ *doctor.Cluster) {
		l.Files = doctor.Certificate{Set: true, Error: "no such file"}
	}, doctor.Problem, "certificate", "no such file"},
	{"client CA", func(l *doctor.Local, _ *doctor.Cluster) {
		l.ClientCA = doctor.Certificate{Set: true, Error: "has no certificate"}
	}, doctor.Problem, "certificate", "has no certificate"},
	{"served certificate", func(_ *doctor.Local, c *doctor.Cluster) { c.Nodes[2].Served.NotAfter = now.Add(-1) }, doctor.Problem, "certificate", "ended"},

	{"few files", func(l *doctor.Local, _ *doctor.Cluster) { l.Limits.Files = 1024 }, doctor.Warning, "limits", "1024 files"},
	{"very few files", func(l *doctor.Local, _ *doctor.Cluster) { l.Limits.Files = 64 }, doctor.Problem, "limits", "64 files"},
	{"backlog", func(l *doctor.Local, _ *doctor.Cluster) { l.Limits.Backlog = 128 }, doctor.Warning, "limits", "128 connections"},
	{"loops", func(l *doctor.Local, _ *doctor.Cluster) { l.Settings.Loops = 5 }, doctor.Warning, "limits", "5 loops on 4"},
	{"little memory", func(l *doctor.Local, _ *doctor.Cluster) { l.Limits.Memory = 200 << 20 }, doctor.Warning, "limits", "200 MiB"},
	{"no memory", func(l *doctor.Local, _ *doctor.Cluster) { l.Limits.Memory = 50 << 20 }, doctor.Problem, "limits", "50 MiB"},
	{"open files", func(_ *doctor.Local, c *doctor.Cluster) { c.Nodes[0].FilesOpen = 850 }, doctor.Warning, "limits", "850 of 1000"},
	{"all files open", func(_ *doctor.Local, c *doctor.Cluster) { c.Nodes[0].FilesOpen = 999 }, doctor.Problem, "limits", "999 of 1000"},

	{"another node's port", func(l *doctor.Local, _ *doctor.Cluster) {
		l.Listeners = append(l.Listeners, doctor.Listener{Setting: "HTTP_PORT", Network: "tcp", Addr: ":1", InUse: true, Owner: 9})
	}, doctor.Problem, "port", "used by node 9"},
	{"no port to bind", func(l *doctor.Local, _ *doctor.Cluster) {
		l.Listeners[1].InUse, l.Listeners[1].Error = false, "permission denied"
	}, doctor.Problem, "port", "permission denied"},
	{"a free port of a running node", func(l *doctor.Local, _ *doctor.Cluster) { l.Listeners[1].InUse, l.Listeners[1].Free = false, true }, doctor.Warning, "port", "is free, although"},
	{"unknown name", func(l *doctor.Local, _ *doctor.Cluster) { l.Names[0].Error = "no such host" }, doctor.Problem, "name", "no such host"},

	{"unspecified address", func(l *doctor.Local, _ *doctor.Cluster) { l.Settings.AdvertiseAddr = "0.0.0.0:8080" }, doctor.Problem, "address", "no address that a client"},
	{"loopback address", func(l *doctor.Local, _ *doctor.Cluster) { l.Settings.AdvertiseAddr = "localhost:8080" }, doctor.Problem, "address", "their own machine"},
	{"unreachable address", func(l *doctor.Local, _ *doctor.Cluster) { l.Advertised.Error = "timeout" }, doctor.Problem, "address", "timeout"},
	{"loopback for peers", func(l *doctor.Local, _ *doctor.Cluster) { l.Settings.RaftAddr = "127.0.0.1:60001" }, doctor.Problem, "address", "cannot reach 127.0.0.1:60001"},
	{"another port for peers", func(l *doctor.Local, _ *doctor.Cluster) { l.Settings.RaftAddr = "0.0.0.0:60002" }, doctor.Warning, "address", "PEERS tells the others 10.0.0.2:60001"},

	{"stale PEERS", func(l *doctor.Local, _ *doctor.Cluster) { l.Settings.Peers[3] = "10.0.0.9:60001" }, doctor.Warning, "peers", "node 3 is at 10.0.0.3:60001"},
	{"data of another node", func(l *doctor.Local, _ *doctor.Cluster) { l.Settings.DataNode = 7 }, doctor.Problem, "disk", "has the data of node 7, and this is node 2"},
	{"data that cannot be read", func(l *doctor.Local, _ *doctor.Cluster) { l.Settings.DataError = "damaged" }, doctor.Problem, "disk", "damaged"},
	{"too few PEERS", func(l *doctor.Local, _ *doctor.Cluster) { delete(l.Settings.Peers, 3) }, doctor.Warning, "peers", "node 3, at 10.0.0.3:60001, is missing"},
	{"too many PEERS", func(l *doctor.Local, _ *doctor.Cluster) { l.Settings.Peers[4] = "10.0.0.4:60001" }, doctor.Warning, "peers", "node 4 is no member"},
	{"no member", func(l *doctor.Local, _ *doctor.Cluster) {
		l.Settings.NodeID, l.Settings.Peers = 4, nil
		l.Listeners[0].Owner = 4
	}, doctor.Problem, "peers", "node 4 is no member"},

	{"not ready", func(_ *doctor.Local, c *doctor.Cluster) {
		c.Nodes[1].Ready, state(c, 2).Node.NotReady = 503, "no clock"
	}, doctor.Problem, "ready", "no clock"},
	{"no answer to /ready", func(_ *doctor.Local, c *doctor.Cluster) { c.Nodes[1].Ready, c.Nodes[1].ReadyText = 0, "timeout" }, doctor.Problem, "ready", "timeout"},
	{"draining", func(_ *doctor.Local, c *doctor.Cluster) { c.Nodes[1].Ready, state(c, 2).Node.Draining = 503, true }, doctor.Warning, "ready", "draining"},
	{"two clusters", func(_ *doctor.Local, c *doctor.Cluster) { state(c, 2).ClusterID = "b" }, doctor.Problem, "cluster", "b, c"},
	{"a stranger", func(_ *doctor.Local, c *doctor.Cluster) {
		c.Report.Strangers = []string{"http://10.0.0.9:8080 is no member of this cluster"}
	}, doctor.Problem, "cluster", "10.0.0.9:8080 is no member"},
	{"no leader", func(_ *doctor.Local, c *doctor.Cluster) { c.Report.Leader = nil }, doctor.Problem, "leader", "no leader"},
	{"new addresses of all", func(_ *doctor.Local, c *doctor.Cluster) {
		c.Report.Leader, c.Nodes[2].Peer.Error = nil, "connection refused"
	}, doctor.Problem, "leader", "node 3 at 10.0.0.3:60001"},
	{"never started", func(_ *doctor.Local, c *doctor.Cluster) { c.Members.Members[2].Incarnation = "" }, doctor.Warning, "member", "never connected"},
	{"learner", func(_ *doctor.Local, c *doctor.Cluster) {
		c.Members.Members[2].Role, c.Members.Members[2].Promote = "learner", true
	}, doctor.Warning, "member", "caught up"},
	{"a pair", func(_ *doctor.Local, c *doctor.Cluster) {
		state(c, 2).Members[2].Connected, state(c, 3).Members[1].Connected = false, false
	}, doctor.Problem, "connection", "as node 2, 3 says"},
	{"a client address", func(_ *doctor.Local, c *doctor.Cluster) { c.Nodes[2].Client.Error = "timeout" }, doctor.Problem, "reach", "10.0.0.3:8080 cannot be reached"},
	{"a loopback client address", func(_ *doctor.Local, c *doctor.Cluster) { c.Nodes[2].Client.Addr = "localhost:8080" }, doctor.Problem, "reach", "are told localhost:8080"},
	{"a clock far off", func(_ *doctor.Local, c *doctor.Cluster) {
		state(c, 3).Clock = survey.Clock{OK: true, Exceeded: true, OffsetFromMedianSeconds: -7}
	}, doctor.Problem, "clock", "-7000 ms"},
	{"a clock without IDs", func(_ *doctor.Local, c *doctor.Cluster) {
		state(c, 3).Clock = survey.Clock{OffsetFromMedianSeconds: 1e300}
	}, doctor.Problem, "clock", "makes no IDs"},
	{"a clock somewhat off", func(_ *doctor.Local, c *doctor.Cluster) { state(c, 3).Clock.OffsetFromMedianSeconds = 0.2 }, doctor.Warning, "clock", "+200 ms"},
	{"versions", func(_ *doctor.Local, c *doctor.Cluster) { state(c, 3).Version = "v2" }, doctor.Warning, "version", "v1 (node 1, 2), v2 (node 3)"},
	{"not finalized", func(_ *doctor.Local, c *doctor.Cluster) { c.Levels.Level = 2 }, doctor.Warning, "version", "not finalized"},
	{"old member", func(_ *doctor.Local, c *doctor.Cluster) {
		*c.Levels = front.Levels{Level: 2, Newest: 3, Next: 2, Missing: []uint64{3}}
	}, doctor.Warning, "version", "node 3 runs an older version"},
	{"lag", func(_ *doctor.Local, c *doctor.Cluster) { *state(c, 1).Members[2].LagEntries = 101 }, doctor.Warning, "lag", "lacks 101"},
	{"much lag", func(_ *doctor.Local, c *doctor.Cluster) { *state(c, 1).Members[2].LagEntries = 4097 }, doctor.Problem, "lag", "lacks 4097"},
	{"no worker", func(_ *doctor.Local, c *doctor.Cluster) { state(c, 3).Workers = nil }, doctor.Problem, "workers", "no worker ID"},
	{"few workers", func(_ *doctor.Local, c *doctor.Cluster) { state(c, 2).Workers = state(c, 2).Workers[:1] }, doctor.Warning, "workers", "1 of 3 worker IDs"},
	{"workers run out", func(l *doctor.Local, _ *doctor.Cluster) { l.Settings.WorkersMax = 10 }, doctor.Warning, "workers", "9 of 10"},
	{"two voters", func(l *doctor.Local, c *doctor.Cluster) {
		delete(l.Settings.Peers, 3)
		c.Report.Views, c.Nodes, c.Members.Members = c.Report.Views[:2], c.Nodes[:2], c.Members.Members[:2]
		for id := uint64(1); id <= 2; id++ {
			state(c, id).Members = state(c, id).Members[:2]
		}
	}, doctor.Warning, "quorum", "two voters"},
	{"even voters", func(_ *doctor.Local, c *doctor.Cluster) {
		for _, v := range c.Report.Views {
			v.State.Members = append(v.State.Members, survey.Member{NodeID: 4, Connected: true})
		}
	}, doctor.Warning, "quorum", "4 voters survive no more failures than 3"},
}

// TestJudge_ANodeThatJustStartedHasNoWorkerYet, unless one was refused, which its readiness says.
func TestJudge_ANodeThatJustStartedHasNoWorkerYet(t *testing.T) {
	for _, c := range []struct {
		ready  bool
		uptime float64
		wrong  bool
	}{{true, 0.5, false}, {true, 9, false}, {true, 11, true}, {false, 0.5, true}} {
		l, nodes := local(), cluster()
		s := state(nodes, 3)
		s.Workers, s.Node.Ready, s.Node.UptimeSeconds = nil, c.ready, c.uptime
		wrong := slices.ContainsFunc(notOK(doctor.Judge(&doctor.Measurements{At: now, Local: l, Cluster: nodes})), func(f doctor.Finding) bool { return f.Check == "workers" })
		if wrong != c.wrong {
			t.Errorf("ready %v after %v s: a problem %v, want %v", c.ready, c.uptime, wrong, c.wrong)
		}
	}
}

// TestJudge_FindsEachAilment and nothing else.
func TestJudge_FindsEachAilment(t *testing.T) {
	for _, a := range slices.Concat(ailments, distrust, untimely) {
		l, c := local(), cluster()
		a.wrong(l, c)
		r := doctor.Judge(&doctor.Measurements{At: now, Local: l, Cluster: c})
		list := notOK(r)
		if a.name == "even voters" { // PEERS lacks it, too
			list = list[:1]
		}
		if len(list) != 1 || list[0].Status != a.status || list[0].Check != a.check || !strings.Contains(list[0].Found, a.found) {
			t.Errorf("%s: %+v, want one %s of %s with %q", a.name, list, a.status, a.check, a.found)
		}
		if failed := r.Err() != nil; failed != (a.status == doctor.Problem) {
			t.Errorf("%s: %v", a.name, r.Err())
		}
		for _, f := range r.Findings {
			if (f.Do == "") != (f.Status == doctor.OK) || f.Check == "" || f.Found == "" || strings.Contains(f.Found+f.Do, "\n") {
				t.Errorf("%s: %+v", a.name, f)
			}
		}
	}
}

// A node that is gone is one problem, and what its absence means for the quorum another one.
func TestJudge_ANodeThatIsGone(t *testing.T) {
	c := cluster()
	stop(c)
	list := notOK(doctor.Judge(&doctor.Measurements{At: now, Cluster: c}))
	if len(list) != 2 || list[0].Subject != "node 3" || list[1].Check != "quorum" || !strings.Contains(list[1].Found, "next failure") {
		t.Errorf("%+v", list)
	}
	state(c, 1).Members[1].Connected, state(c, 2).Members[0].Connected = false, false
	list = notOK(doctor.Judge(&doctor.Measurements{At: now, Cluster: c}))
	if len(list) != 3 || list[1].Check != "quorum" || !strings.Contains(list[1].Found, "1 of 3 voters connected, 2 needed") || list[2].Check != "connection" {
		t.Errorf("%+v", list)
	}
}

// A peer address that is closed to this machine is no problem while the members are connected.
func TestJudge_PeerAddressesMayBeClosed(t *testing.T) {
	c := cluster()
	c.Nodes[1].Peer.Error = "timeout"
	if list := notOK(doctor.Judge(&doctor.Measurements{At: now, Cluster: c})); len(list) != 0 {
		t.Errorf("%+v", list)
	}
	state(c, 1).Members[1].Connected = false
	list := notOK(doctor.Judge(&doctor.Measurements{At: now, Cluster: c}))
	reach := 0
	for _, f := range list {
		if f.Check == "reach" && strings.Contains(f.Found, "10.0.0.2:60001") {
			reach++
		}
	}
	if reach != 1 {
		t.Errorf("%+v", list)
	}
}

func TestJudge_BeforeTheFirstStart(t *testing.T) {
	l := alone()
	l.Peers = []doctor.Dial{{NodeID: 1, Addr: "10.0.0.1:60001", Error: "refused"}, {NodeID: 3, Addr: "10.0.0.3:60001"}}
	l.Listeners[1].Free, l.Listeners[1].InUse = false, true
	l.Listeners[2].Free, l.Listeners[2].InUse = false, true
	list := notOK(doctor.Judge(&doctor.Measurements{At: now, Local: l}))
	var got []string
	for _, f := range list {
		got = append(got, fmt.Sprintf("%s %s %s", f.Status, f.Check, f.Subject))
	}
	want := []string{"problem port RAFT_ADDR, tcp", "warning port THRIFT_PORT, tcp", "warning peer node 1"}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%+v", list)
	}
	l.Listeners[0] = doctor.Listener{Setting: "HTTP_PORT", Network: "tcp", Addr: ":8080", InUse: true, Waiting: "not a member yet"}
	list = notOK(doctor.Judge(&doctor.Measurements{At: now, Local: l}))
	if list[0].Status != doctor.Warning || !strings.Contains(list[0].Found, "waits: not a member yet") {
		t.Errorf("%+v", list)
	}
}

// What to do about a replacement that was never started must not remove the node that it is for.
func TestJudge_ReplacementsAreGivenUpAsSuch(t *testing.T) {
	for _, replaces := range []uint64{0, 3} {
		c := cluster()
		c.Members.Members[2].Incarnation, c.Members.Members[2].Replaces = "", replaces
		list := notOK(doctor.Judge(&doctor.Measurements{At: now, Cluster: c}))
		if len(list) != 1 || strings.HasSuffix(list[0].Do, "isotone member remove 3 --replacement") != (replaces != 0) || !strings.Contains(list[0].Do, "isotone member remove 3") {
			t.Errorf("%d: %+v", replaces, list)
		}
	}
}

func TestJudge_NoEndpointAnswers(t *testing.T) {
	list := notOK(doctor.Judge(&doctor.Measurements{At: now, Endpoints: []string{"a:1", "b:2"}, Unanswered: "refused"}))
	if len(list) != 1 || list[0].Status != doctor.Problem || !strings.Contains(list[0].Found, "refused") || list[0].Subject != "a:1,b:2" {
		t.Errorf("%+v", list)
	}
}

func TestJudge_AClusterThatForms(t *testing.T) {
	c := cluster()
	c.Report.Leader, c.Levels, c.Members = nil, nil, nil
	for i, v := range c.Report.Views {
		v.State.Node.Forming, v.State.Node.Ready, v.State.Node.NotReady, c.Nodes[i].Ready = true, false, "waits for node 3", 503
		v.State.Workers, v.State.ClusterID = nil, ""
	}
	r := doctor.Judge(&doctor.Measurements{At: now, Cluster: c})
	if list := notOK(r); r.Problems != 0 || len(list) != 3 || !strings.Contains(list[0].Found, "waits for node 3") {
		t.Errorf("%+v", list)
	}
}

func TestWriteTable_SaysWhatToDo(t *testing.T) {
	r := &doctor.Report{OK: 1, Problems: 1, Findings: []doctor.Finding{
		{Check: "disk", Subject: "space", Status: doctor.OK, Found: "63 GiB free"},
		{Check: "ready", Subject: "node 3", Status: doctor.Problem, Found: "does not\nanswer\x1b[2J", Do: "start it"},
	}}
	var out strings.Builder
	if err := doctor.WriteTable(&out, r); err != nil {
		t.Fatal(err)
	}
	want := "ok       disk   space   63 GiB free\n" +
		"problem  ready  node 3  does not answer [2J\n" +
		"                        do: start it\n" +
		"\n2 checks: 1 ok, 0 warnings, 1 problem\n"
	if out.String() != want {
		t.Errorf("got\n%q\nwant\n%q", out.String(), want)
	}
	text, err := json.Marshal(r)
	if err != nil || !strings.Contains(string(text), `"problems":1`) || !strings.Contains(string(text), `{"check":"disk","subject":"space","status":"ok","found":"63 GiB free"}`) {
		t.Errorf("%s, %v", text, err)
	}
}
