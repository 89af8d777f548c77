package main

import (
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"github.com/isotone/isotone/internal/check/await"
	"github.com/isotone/isotone/internal/check/rig"
	"github.com/isotone/isotone/internal/host/config"
)

// podsOf sets up nodes as the pods of a StatefulSet: PEERS names SRV records, of count initial members,
// and JOIN is the same for all.
func podsOf(t *testing.T, z *zone, count, n int) (all processes) {
	t.Helper()
	for id := range uint64(n) {
		all = append(all, newProcess(t, id+1))
	}
	for _, p := range all {
		p.s.Join, p.dns = all.addrs(), z.lookup
		if p.s.NodeID <= uint64(count) { // as config.Flags.Parse does
			p.s.PeersSRV = &config.SRV{Name: zoneName, Count: count, ByPriority: true}
		}
	}
	return all
}

// saysElsewhere asks as a proxy does, for somebody who may be on another machine.
func (p *process) saysElsewhere(path, words, not string) {
	p.t.Helper()
	r, err := http.NewRequest(http.MethodGet, "http://"+p.s.AdvertiseAddr+path, nil)
	if err != nil {
		p.t.Fatal(err)
	}
	r.Header.Set("Via", "1.1 proxy")
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		p.t.Fatal(err)
	}
	defer resp.Body.Close()
	if body, err := io.ReadAll(resp.Body); err != nil || !strings.Contains(string(body), words) || strings.Contains(string(body), not) {
		p.t.Errorf("%s, %v", body, err)
	}
}

// TestJoinOrPeers_FormsOneCluster: initial members form it, and one that has lost its disk waits until
// it is replaced, whatever DNS says.
func TestJoinOrPeers_FormsOneCluster(t *testing.T) {
	t.Parallel()
	z := &zone{}
	all := podsOf(t, z, 3, 4)
	late := all[3]
	for _, p := range all {
		p.start()
		p.says("/livez", 200, "ok")
	}
	all[0].says("/ready", 503, "the initial members are not all in DNS (PEERS, "+zoneName+"): ")
	late.says("/ready", 503, "not a member yet: ")
	late.saysElsewhere("/ready", "not a member yet: the log of this node says why", all[0].s.AdvertiseAddr)
	for _, p := range all[:3] {
		z.add(t, p)
	}
	for _, p := range all[:3] {
		p.ready()
	}
	late.says("/ready", 503, "not_found: node 4 is not a member of cluster")
	all[:3].does(t, "member add 4 "+late.s.RaftAddr+" --voter", "node 4 is a voter")
	late.ready()

	// An initial member loses its disk.
	p := all[2]
	if err := p.stop(); err != nil {
		t.Fatal(err)
	}
	p.s.DataDir = filepath.Join(t.TempDir(), "wiped")
	p.s.Peers = nil
	p.start()
	p.says("/ready", 503, "node 3 is a member of cluster "+clusterOf(all[0].m).String()+" with another data directory")
	z.clear() // the cluster lets it in, and names the members
	all.does(t, "member replace 3 "+p.s.RaftAddr, "node 3 is replaced")
	p.ready()
	all.roles(t, "1 voter, 2 voter, 3 voter, 4 voter")

	// With its directory it needs neither, as before.
	if err := p.stop(); err != nil {
		t.Fatal(err)
	}
	p.s.Join, p.s.Peers = []string{closedAddr(t)}, nil
	p.start()
	p.ready()
}

// TestJoinOrPeers_RefusedByMembersOfACluster: nobody in JOIN answers a node whose disk was wiped, so it
// tries to form the cluster. The members refuse that. The directory that it has made cannot join.
func TestJoinOrPeers_RefusedByMembersOfACluster(t *testing.T) {
	t.Parallel()
	z := &zone{}
	all := podsOf(t, z, 3, 3)
	for _, p := range all {
		z.add(t, p)
		p.start()
	}
	for _, p := range all {
		p.ready()
	}
	p := all[0]
	if err := p.stop(); err != nil {
		t.Fatal(err)
	}
	p.s.DataDir, p.s.Join, p.s.Peers = filepath.Join(t.TempDir(), "wiped"), []string{closedAddr(t)}, nil
	p.start()
	if err := p.ended(); err == nil || !strings.Contains(err.Error(), "wiped: ") && !strings.Contains(err.Error(), "already_formed: ") {
		t.Fatalf("it ended with %v", err)
	}
	all[1:].does(t, fmt.Sprintf("member replace %d %s --wait 0s", p.s.NodeID, p.s.RaftAddr), "has not been started yet")
	p.s.Join, p.s.Peers = all.addrs(), nil
	p.start()
	p.says("/ready", 503, "was made for another generation of this node: delete it")
	p.stopWaiting()
	p.s.DataDir += "-again"
	p.start()
	p.ready()
	all.roles(t, "1 voter, 2 voter, 3 voter")
}

// TestMetricsAddr_AnswersWhileANodeWaits, so that one port does for all probes.
func TestMetricsAddr_AnswersWhileANodeWaits(t *testing.T) {
	t.Parallel()
	all := startProcesses(t, 1)
	p := all.joiner(t, 2)
	p.s.MetricsAddr = closedAddr(t)
	p.start()
	at := func(path string, status int, words string) {
		t.Helper()
		await.Done(t, await.Timeout, func() (bool, string) {
			got, body := rig.Fetch(t, "http://"+p.s.MetricsAddr+path)
			return got == status && strings.Contains(body, words), fmt.Sprintf("%s: %d %s", path, got, body)
		})
	}
	at("/livez", 200, "ok")
	at("/readyz", 503, "not a member yet")
	all.does(t, "member add 2 "+p.s.RaftAddr+" --voter", "node 2 is a voter")
	p.ready()
	at("/readyz", 200, "ok")
	at("/metrics", 200, "isotone_build_info")
}
