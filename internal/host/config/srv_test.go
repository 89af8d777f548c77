package config_test

import (
	"errors"
	"fmt"
	"maps"
	"net"
	"strings"
	"testing"

	"github.com/isotone/isotone/internal/host/config"
)

func TestPeers_FromDNS(t *testing.T) {
	for _, tt := range []struct {
		peers, id string
		want      config.SRV
	}{
		{"dns+srv:_peer._tcp.isotone.default.svc.cluster.local?count=3", "3", config.SRV{Name: "_peer._tcp.isotone.default.svc.cluster.local", Count: 3}},
		{"dns+srv:isotone?count=64&id=ordinal", "1", config.SRV{Name: "isotone", Count: 64}},
		{"dns+srv:isotone?id=priority&count=3", "70", config.SRV{Name: "isotone", Count: 3, ByPriority: true}},
	} {
		f := defaults(t)
		f.Peers, f.NodeID = tt.peers, tt.id
		s, err := f.Parse()
		if ids := s.PeersSRV.IDs(); tt.want.ByPriority != (ids == nil) || ids != nil && (len(ids) != tt.want.Count || ids[0] != 1) {
			t.Errorf("PEERS=%q: IDs %v", tt.peers, ids)
		}
		if err != nil || s.PeersSRV == nil || *s.PeersSRV != tt.want || s.Peers != nil {
			t.Errorf("PEERS=%q: %+v, %v; want %+v", tt.peers, s.PeersSRV, err, tt.want)
		}
	}
	for peers, want := range map[string]string{
		"dns+srv:":                              "want dns+srv:NAME?count=N",
		"dns+srv:?count=3":                      "want dns+srv:NAME?count=N",
		"dns+srv:isotone":                       "want ?count=N",
		"dns+srv:isotone?count=0":               "want ?count=N",
		"dns+srv:isotone?count=65":              "from 1 to 64",
		"dns+srv:isotone?count=x":               "want ?count=N",
		"dns+srv:isotone?count=3&count=4":       "want count once",
		"dns+srv:isotone?count=3&id=weight":     "id=ordinal or id=priority",
		"dns+srv:isotone?count=3&port=1":        "nothing else",
		"dns+srv:isotone?count=%zz":             "want dns+srv:NAME?count=N",
		"dns+srv:a,1=b:1?count=3":               "no other entries",
		"dns+srv:isotone/path?count=3":          "want dns+srv:NAME?count=N",
		"dns+srv:isotone?count=2":               "the initial members have the IDs 1 to 2, and NODE_ID is 3: want JOIN",
		"dns:isotone?count=3":                   "want id=host:port",
		"dns+srv:one?count=3,dns+srv:two?count": "count=N",
	} {
		f := defaults(t)
		f.Peers, f.NodeID = peers, "3"
		if _, err := f.Parse(); err == nil || !strings.Contains(err.Error(), "PEERS") || !strings.Contains(err.Error(), want) {
			t.Errorf("PEERS=%q: %v, want %q", peers, err, want)
		}
	}
}

func srv(target string, port, priority uint16) *net.SRV {
	return &net.SRV{Target: target, Port: port, Priority: priority}
}

func TestSRV_PeersOfRecords(t *testing.T) {
	pod := func(ordinal int) *net.SRV {
		return srv(fmt.Sprintf("isotone-%d.isotone.default.svc.cluster.local.", ordinal), 60001, 0)
	}
	addr := func(ordinal int) string {
		return fmt.Sprintf("isotone-%d.isotone.default.svc.cluster.local:60001", ordinal)
	}
	three := map[uint64]string{1: addr(0), 2: addr(1), 3: addr(2)}
	for name, tt := range map[string]struct {
		byPriority bool
		records    []*net.SRV
		want       map[uint64]string
		err        string // "" if all are there
	}{
		"all":              {false, []*net.SRV{pod(2), pod(0), pod(1)}, three, ""},
		"a record twice":   {false, []*net.SRV{pod(2), pod(0), pod(1), pod(1)}, three, ""},
		"added later":      {false, []*net.SRV{pod(4), pod(2), pod(0), pod(1), pod(3)}, three, ""},
		"none":             {false, nil, map[uint64]string{}, "records of 0 of 3 nodes; missing: node 1, 2, 3"},
		"one is missing":   {false, []*net.SRV{pod(0), pod(2)}, map[uint64]string{1: addr(0), 3: addr(2)}, "records of 2 of 3 nodes; missing: node 2"},
		"the wrong ones":   {false, []*net.SRV{pod(3), pod(4), pod(5)}, map[uint64]string{}, "missing: node 1, 2, 3"},
		"two ports":        {false, []*net.SRV{pod(0), srv(pod(0).Target, 8080, 0)}, map[uint64]string{1: addr(0)}, "two records for node 1"},
		"no ordinal":       {false, []*net.SRV{srv("10-0-0-1a.example.", 1, 0)}, map[uint64]string{}, `"10-0-0-1a.example" does not end its first label with a number`},
		"no name before":   {false, []*net.SRV{srv("-1.example.", 1, 0)}, map[uint64]string{}, "does not end its first label"},
		"no port":          {false, []*net.SRV{srv("a-1.example.", 0, 0)}, map[uint64]string{}, "port 0"},
		"no target":        {false, []*net.SRV{srv(".", 1, 0)}, map[uint64]string{}, `target "."`},
		"by priority":      {true, []*net.SRV{srv("a.", 1, 7), srv("b.", 2, 30), srv("c.", 3, 9)}, map[uint64]string{7: "a:1", 30: "b:2", 9: "c:3"}, ""},
		"two of three":     {true, []*net.SRV{srv("a.", 1, 7), srv("b.", 2, 30)}, map[uint64]string{7: "a:1", 30: "b:2"}, "records of 2 of 3 nodes"},
		"four of three":    {true, []*net.SRV{srv("a.", 1, 1), srv("b.", 1, 2), srv("c.", 1, 3), srv("d.", 1, 4)}, map[uint64]string{1: "a:1", 2: "b:1", 3: "c:1", 4: "d:1"}, "records of 4 nodes, and count=3"},
		"no priority":      {true, []*net.SRV{srv("a.", 1, 0)}, map[uint64]string{}, "priority 0"},
		"one address":      {true, []*net.SRV{srv("a.", 1, 1), srv("a.", 1, 2)}, map[uint64]string{1: "a:1"}, "or for a:1"},
		"a priority twice": {true, []*net.SRV{srv("a.", 1, 1), srv("b.", 1, 1)}, map[uint64]string{1: "a:1"}, "two records for node 1"},
	} {
		v := config.SRV{Name: "x", Count: 3, ByPriority: tt.byPriority}
		got, err := v.Peers(tt.records)
		if !maps.Equal(got, tt.want) || (err == nil) != (tt.err == "") || err != nil && !strings.Contains(err.Error(), tt.err) {
			t.Errorf("%s: %v, %v; want %v, %q", name, got, err, tt.want, tt.err)
		}
	}
}

// FuzzSRV_Peers: whatever DNS has, the list is complete or an error says that it is not.
func FuzzSRV_Peers(f *testing.F) {
	f.Add("isotone-0.a.", "isotone-1.a.", uint16(1), uint16(2), true)
	f.Add("isotone-1.", "-.", uint16(0), uint16(60001), false)
	f.Fuzz(func(t *testing.T, a, b string, p, q uint16, byPriority bool) {
		v := config.SRV{Count: 2, ByPriority: byPriority}
		peers, err := v.Peers([]*net.SRV{srv(a, p, p), srv(b, q, q)})
		if err == nil && (len(peers) != 2 || !byPriority && (peers[1] == "" || peers[2] == "")) {
			t.Errorf("%q, %q: %v", a, b, peers)
		}
		for id, addr := range peers {
			if _, _, err := net.SplitHostPort(addr); err != nil || id == 0 {
				t.Errorf("%d=%q: %v", id, addr, err)
			}
		}
	})
}

func TestNodeID_FromTheHostName(t *testing.T) {
	for host, want := range map[string]uint64{
		"isotone-0": 1, "isotone-12.isotone.default.svc.cluster.local": 13, "a-b-007": 8, "isotone-281474976710654": 1<<48 - 1,
		"isotone": 0, "-1": 0, "isotone-x": 0, "isotone-1a": 0, "isotone--1": 2, "isotone-281474976710655": 0, "": 0, "a.b-1": 0,
	} {
		restore := config.SetHostname(func() (string, error) { return host, nil })
		f := defaults(t)
		f.NodeID = "ordinal"
		s, err := f.Parse()
		restore()
		if want == 0 {
			if err == nil || !strings.Contains(err.Error(), "NODE_ID") || !strings.Contains(err.Error(), "does not end its first label with a number, as in isotone-0") {
				t.Errorf("on %q: node %d, %v", host, s.NodeID, err)
			}
		} else if err != nil || s.NodeID != want {
			t.Errorf("on %q: node %d, %v; want %d", host, s.NodeID, err, want)
		}
	}
	defer config.SetHostname(func() (string, error) { return "", errors.New("no name") })()
	f := defaults(t)
	f.NodeID = "ordinal"
	if _, err := f.Parse(); err == nil || !strings.Contains(err.Error(), "no name") {
		t.Errorf("%v", err)
	}
}

// PEERS and JOIN together are for machines with the same settings.
func TestPeers_WithJoin(t *testing.T) {
	for id, initial := range map[string]bool{"1": true, "3": true, "4": false} {
		f := defaults(t)
		f.NodeID, f.Peers, f.Join = id, "dns+srv:_peer._tcp.isotone?count=3", "isotone:8080"
		s, err := f.Parse()
		if err != nil || len(s.Join) != 1 || (s.PeersSRV != nil) != initial {
			t.Errorf("NODE_ID=%s: %+v, %v, %v", id, s.PeersSRV, s.Join, err)
		}
	}
	for _, peers := range []string{"1=a:1", "dns+srv:isotone?count=3&id=priority"} {
		f := defaults(t)
		f.Peers, f.Join = peers, "isotone:8080"
		if _, err := f.Parse(); err == nil || !strings.Contains(err.Error(), "want JOIN or PEERS, not both, unless PEERS is dns+srv:NAME?count=N") {
			t.Errorf("PEERS=%s: %v", peers, err)
		}
	}
	f := defaults(t)
	f.Peers, f.Join = "dns+srv:isotone", "isotone:8080"
	if _, err := f.Parse(); err == nil || strings.Contains(err.Error(), "JOIN") {
		t.Errorf("without count: %v", err)
	}
}

func TestNodeID_OfOrdinalsWithExceptions(t *testing.T) {
	defer config.SetHostname(func() (string, error) { return "isotone-3.isotone", nil })()
	for text, want := range map[string]uint64{"ordinal": 4, "ordinal,3=104": 104, "ordinal,1=102,3=65": 65, "ordinal,4=105": 4} {
		f := defaults(t)
		f.NodeID = text
		if s, err := f.Parse(); err != nil || s.NodeID != want {
			t.Errorf("NODE_ID=%s: %d, %v; want %d", text, s.NodeID, err, want)
		}
	}
	for _, text := range []string{"ordinal,", "ordinal,3", "ordinal,3=64", "ordinal,64=104", "ordinal,3=104,3=105", "ordinal,3=104,4=104", "ordinal,3=x", "ordinals", "ordinal;3=104"} {
		f := defaults(t)
		f.NodeID = text
		if _, err := f.Parse(); err == nil || !strings.Contains(err.Error(), "NODE_ID") {
			t.Errorf("NODE_ID=%s: %v", text, err)
		}
	}
}
