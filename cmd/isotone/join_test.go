package main

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/isotone/isotone/internal/check/await"
	"github.com/isotone/isotone/internal/check/rig"
)

func TestJoin_RefusesPeersBeside(t *testing.T) {
	wantRun(t, exitUsage, "", "want JOIN or PEERS, not both", "serve", "--join", "a:1", "--peers", "1=a:2", "--data-dir", t.TempDir())
	wantRun(t, exitUsage, "", "JOIN (--join)", "serve", "--join", "a", "--data-dir", t.TempDir())
}

// TestJoin_BeforeItIsAdded: the node waits, says for what, and joins as soon as it may.
func TestJoin_BeforeItIsAdded(t *testing.T) {
	t.Parallel()
	all := startProcesses(t, 1)
	p := all.joiner(t, 2)
	p.start()
	p.says("/up", 200, "ok")
	const reason = "not_found: node 2 is not a member of cluster"
	for _, path := range []string{"/ready", "/timestamp", "/members"} {
		p.says(path, 503, reason)
	}
	p.stopWaiting()
	if id, _ := os.ReadDir(p.s.DataDir); len(id) != 0 {
		t.Errorf("it has written %v", id)
	}
	p.start()
	p.says("/ready", 503, reason)
	all.does(t, "member add 2 "+p.s.RaftAddr+" --voter", "node 2 is a voter")
	p.ready()
	all = append(all, p)
	// With its directory it needs neither JOIN nor PEERS, and both may be out of date.
	for _, join := range [][]string{{closedAddr(t)}, nil} {
		if err := p.stop(); err != nil {
			t.Fatal(err)
		}
		p.s.Join = join
		p.start()
		p.ready()
	}
	await.Until(t, "the third start is on record", func() bool { // a moment after the node is ready
		m := all.list(t).Members[1]
		return m.Start == 3 && m.Role != "learner"
	})
}

// TestJoin_ANodeAloneOnAnyPort: what goes on record is the port that was bound, at each start another one.
func TestJoin_ANodeAloneOnAnyPort(t *testing.T) {
	t.Parallel()
	one := newProcess(t, 1)
	one.s.RaftAddr = "127.0.0.1:0"
	all := processes{one}
	for range 2 {
		one.start()
		one.ready()
		await.Until(t, "it is on record where it listens", func() bool {
			conn, err := net.Dial("tcp", all.list(t).Members[0].PeerAddr)
			if err == nil {
				err = conn.Close()
			}
			return err == nil
		})
		if err := one.stop(); err != nil {
			t.Fatal(err)
		}
	}
	one.start()
	one.ready()
	two := all.joiner(t, 2)
	all.does(t, "member add 2 "+two.s.RaftAddr, "is added")
	two.start()
	two.ready()
	all = append(all, two)
	all.roles(t, "1 voter, 2 voter")
}

// TestJoin_ResumesWithItsDirectory: the cluster knows the node, but nobody can let it in yet,
// when it is stopped and started again.
func TestJoin_ResumesWithItsDirectory(t *testing.T) {
	t.Parallel()
	all := startProcesses(t, 1)
	p := all.joiner(t, 2)
	all.does(t, "member add 2 "+p.s.RaftAddr, "is added")
	listed := all.list(t).Members[0].PeerAddr
	all.does(t, "member update 1 "+closedAddr(t), "are changed") // where the joiner dials in vain
	p.start()
	<-p.began
	incarnation := func() string {
		for line := range strings.Lines(p.log.String()) {
			if _, rest, ok := strings.Cut(line, `"incarnation":"`); ok {
				return rest[:16]
			}
		}
		return ""
	}
	was := incarnation()
	if err := p.stop(); err != nil {
		t.Fatal(err)
	}

	p.s.Join = nil
	p.start()
	if err := p.ended(); err == nil || !strings.Contains(err.Error(), "was made to join cluster") || !strings.Contains(err.Error(), "start with JOIN again") {
		t.Errorf("without JOIN: %v", err)
	}
	foreign := startProcesses(t, 1)
	p.s.Join = foreign.addrs()
	if code, out, err := foreign.operate("member add 2 " + p.s.RaftAddr); code != 0 {
		t.Fatal(out, err)
	}
	p.start()
	if err := p.ended(); err == nil || !strings.Contains(err.Error(), "JOIN names nodes of cluster "+clusterOf(foreign[0].m).String()) ||
		!strings.Contains(err.Error(), "was made to join cluster "+clusterOf(all[0].m).String()) {
		t.Errorf("with JOIN of another cluster: %v", err)
	}

	all.does(t, "member update 1 "+listed, "are changed")
	p.s.Join = all.addrs()
	p.start()
	p.ready()
	all = append(all, p)
	all.roles(t, "1 voter, 2 voter")
	if m := all.list(t).Members[1]; m.Incarnation != was || m.Start < 2 {
		t.Errorf("it joined as %+v, and was %s", m, was)
	}
	other := all.joiner(t, 2)
	other.start()
	other.says("/ready", 503, "node 2 is a member of cluster "+clusterOf(all[0].m).String()+" with another data directory; if that is lost, run: isotone member replace 2 PEER_ADDR")
}

// TestJoin_AReplacementJoinsOnTheOldAddress, started before the command; the old directory is
// refused for good, and so is one that was made for a replacement that was given up.
func TestJoin_AReplacementJoinsOnTheOldAddress(t *testing.T) {
	t.Parallel()
	all := startProcesses(t, 3)
	_, others := all.leader(t)
	p := others[0]
	if err := p.stop(); err != nil {
		t.Fatal(err)
	}
	old := p.s
	rest := processes{}
	for _, o := range all {
		if o != p {
			rest = append(rest, o)
		}
	}
	p.s.Peers, p.s.Join, p.s.DataDir = nil, rest.addrs(), filepath.Join(t.TempDir(), "new")
	p.start()
	p.says("/ready", 503, "another data directory")
	rest.does(t, fmt.Sprintf("member replace %d %s", p.s.NodeID, p.s.RaftAddr), fmt.Sprintf("node %d is replaced", p.s.NodeID))
	p.ready()
	all.roles(t, "1 voter, 2 voter, 3 voter")
	m := all.list(t).Members[p.s.NodeID-1]
	if m.Generation != 1 || m.Replaces != 0 || m.Promote || !m.Connected {
		t.Errorf("%+v", m)
	}
	for _, o := range all { // people see nodes, not generations
		if text := o.log.String(); strings.Contains(text, "2814749767") {
			t.Errorf("the log of node %d has the ID of a member: %s", o.s.NodeID, text)
		}
		await.Done(t, await.Timeout, func() (bool, string) {
			_, body := rig.Fetch(t, "http://"+o.s.AdvertiseAddr+"/state")
			return strings.Count(body, `"nodeID":`) > 0 && !strings.Contains(body, "2814749767"), body
		})
		if _, body := rig.Fetch(t, "http://"+o.s.AdvertiseAddr+"/metrics"); strings.Contains(body, `peer="2814749767`) {
			t.Errorf("the metrics of node %d have the ID of a member", o.s.NodeID)
		}
	}
	if err := p.stop(); err != nil {
		t.Fatal(err)
	}
	renewed := p.s
	p.s = old
	p.start()
	if err := p.ended(); err == nil || !strings.Contains(err.Error(), "removed: node "+fmt.Sprint(old.NodeID)+" was replaced by a node with a new data directory") {
		t.Errorf("the old directory: %v", err)
	}
	p.s = renewed
	p.s.NodeID = 9
	p.start()
	if err := p.ended(); err == nil || !strings.Contains(err.Error(), fmt.Sprintf("belongs to node %d, but this is node 9", old.NodeID)) {
		t.Errorf("as another node: %v", err)
	}
	p.s.NodeID = old.NodeID
	p.start()
	p.ready()
}
