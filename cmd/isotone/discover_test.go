package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/isotone/isotone/internal/host/config"
	"github.com/isotone/isotone/internal/server"
)

// zone is a DNS zone with SRV records of one name, as id=priority needs them.
type zone struct {
	mu      sync.Mutex
	records []*net.SRV
	asked   int
}

const zoneName = "_peer._tcp.isotone.test"

func (z *zone) lookup(ctx context.Context, service, proto, name string) (string, []*net.SRV, error) {
	z.mu.Lock()
	defer z.mu.Unlock()
	z.asked++
	if _, bounded := ctx.Deadline(); !bounded || service != "" || proto != "" || name != zoneName {
		return "", nil, fmt.Errorf("a lookup of %s %s %s", service, proto, name)
	}
	if len(z.records) == 0 {
		return "", nil, &net.DNSError{Err: "no such host", Name: name, IsNotFound: true}
	}
	return name, z.records, nil
}

// add adds a record for a node.
func (z *zone) add(t *testing.T, p *process) {
	t.Helper()
	host, _, _ := net.SplitHostPort(p.s.RaftAddr)
	z.mu.Lock()
	defer z.mu.Unlock()
	// The slice of earlier answers stays as it is.
	z.records = append(slices.Clone(z.records), &net.SRV{Target: host, Port: uint16(portOf(t, p.s.RaftAddr)), Priority: uint16(p.s.NodeID)})
}

func (z *zone) clear() {
	z.mu.Lock()
	defer z.mu.Unlock()
	z.records, z.asked = nil, 0
}

func (z *zone) lookups() int {
	z.mu.Lock()
	defer z.mu.Unlock()
	return z.asked
}

// TestDiscover_FormsAClusterOfAllItsRecords, and never of some.
func TestDiscover_FormsAClusterOfAllItsRecords(t *testing.T) {
	t.Parallel()
	z := &zone{}
	var all processes
	for id := range uint64(3) {
		p := newProcess(t, id+1)
		p.s.PeersSRV, p.dns = &config.SRV{Name: zoneName, Count: 3, ByPriority: true}, z.lookup
		all = append(all, p)
		p.start()
		p.says("/up", 200, "ok")
		p.says("/ready", 503, "waiting for the initial members in DNS (PEERS, "+zoneName+"): ")
	}
	all[0].says("/ready", 503, "no such host")
	all[2].stopWaiting()
	if files, _ := os.ReadDir(all[2].s.DataDir); len(files) != 0 {
		t.Errorf("it has written %v", files)
	}
	z.add(t, all[1])
	all[0].says("/ready", 503, "there are records of 1 of 3 nodes")
	z.add(t, all[0])
	all[0].says("/ready", 503, "there are records of 2 of 3 nodes")
	all[1].says("/timestamp", 503, "there are records of 2 of 3 nodes")
	z.add(t, all[2])
	all[2].start()
	for _, p := range all {
		p.ready()
		if log := p.log.String(); strings.Count(log, "found the initial members in DNS") != 1 || strings.Count(log, "there are records of 2 of 3 nodes") > 1 {
			t.Errorf("the log of node %d: %s", p.s.NodeID, log)
		}
	}
	for _, m := range all.list(t).Members {
		if m.PeerAddr != all[m.NodeID-1].s.RaftAddr {
			t.Errorf("%+v", m)
		}
	}

	// From then on DNS may be wrong, or gone.
	z.clear()
	for _, p := range all {
		if err := p.stop(); err != nil {
			t.Fatal(err)
		}
		p.start()
		p.ready()
	}
	if n := z.lookups(); n != 3 { // once each, as a member may not be where the record says
		t.Errorf("%d lookups at 3 starts", n)
	}
}

// TestDiscover_SaysThatItIsNotListed: the records are of other nodes.
func TestDiscover_SaysThatItIsNotListed(t *testing.T) {
	z := &zone{}
	p, other := newProcess(t, 1), newProcess(t, 2)
	z.add(t, other)
	p.s.PeersSRV, p.dns = &config.SRV{Name: zoneName, Count: 1, ByPriority: true}, z.lookup
	p.start()
	p.says("/ready", 503, "there is no record of this node, NODE_ID 1")
}

// RAFT_ADDR may be every interface once an address is on record, and not before.
func TestServe_RefusesToFormAClusterAtNoAddress(t *testing.T) {
	p := newProcess(t, 1)
	everywhere := "0.0.0.0:60001"
	code, _, text := command("serve", "--raft-addr", everywhere, "--data-dir", p.s.DataDir)
	if code != exitUsage || !strings.Contains(text, `RAFT_ADDR (--raft-addr) = "0.0.0.0:60001"`) || !strings.Contains(text, "PEERS") {
		t.Errorf("exit code %d: %s", code, text)
	}
	if _, err := os.Stat(p.s.DataDir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the data directory: %v", err)
	}
	p.start()
	p.ready()
	p.stop()
	s := p.s
	s.RaftAddr = everywhere
	if err := server.CheckData(&s); err != nil {
		t.Errorf("after the cluster was formed: %v", err)
	}
}

func TestServe_RefusesToFormAClusterOfANodeThatImpliesOthers(t *testing.T) {
	p := newProcess(t, 2)
	code, _, text := command("serve", "--node-id", "2", "--raft-addr", p.s.RaftAddr, "--data-dir", p.s.DataDir)
	if code != exitUsage || !strings.Contains(text, `NODE_ID (--node-id) = "2"`) || !strings.Contains(text, "PEERS=1=HOST:PORT,2="+p.s.RaftAddr) {
		t.Errorf("exit code %d: %s", code, text)
	}
	if _, err := os.Stat(p.s.DataDir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the data directory: %v", err)
	}
	p.s.Peers = map[uint64]string{2: p.s.RaftAddr}
	p.start()
	p.ready()
	p.stop()
	p.s.Peers = nil
	if err := server.CheckData(&p.s); err != nil {
		t.Errorf("after the cluster was formed: %v", err)
	}
	p.start()
	p.ready()
	p.stop()
	if code, _, text := command("recover", "--force-new-cluster", "--yes", "--node-id", "2", "--raft-addr", p.s.RaftAddr, "--data-dir", p.s.DataDir); code != 0 {
		t.Fatalf("recover: exit code %d: %s", code, text)
	}
	if err := server.CheckData(&p.s); err != nil {
		t.Errorf("after recover: %v", err)
	}
}

// TestServe_RefusesPeersInClear that PEERS names. The client port is taken, so that a node that does
// not refuse them fails as well.
func TestServe_RefusesPeersInClear(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	dir := t.TempDir() + "/data"
	for args, refused := range map[string]bool{"--peers 1=192.0.2.9:1,2=192.0.2.1:1": true, "--peers 1=127.0.0.1:1,2=127.0.0.1:2": false, "--peers 1=192.0.2.9:1,2=192.0.2.1:1 --peer-insecure": false} {
		args = fmt.Sprint(args, " --node-id 1 --raft-addr 127.0.0.1:1 --http-host 127.0.0.1 --thrift-port 0 --http-port ", portOf(t, taken.Addr().String()), " --data-dir ", dir)
		code, _, text := command(append([]string{"serve"}, strings.Fields(args)...)...)
		if told := code == exitUsage && strings.Contains(text, "PEERS (--peers)") && strings.Contains(text, "PEER_INSECURE=1"); told != refused || code == 0 {
			t.Errorf("%s: exit code %d: %s", args, code, text)
		}
		if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s: the data directory: %v", args, err)
		}
	}
}
