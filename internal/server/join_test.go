package server

import (
	"context"
	"encoding/json"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"

	"github.com/isotone/isotone/internal/front"
	"github.com/isotone/isotone/internal/host/config"
)

// settingsOf returns the settings of a node that has no data yet.
func settingsOf(t *testing.T, id uint64) config.Settings {
	t.Helper()
	s := config.Default()
	s.NodeID, s.DataDir = id, filepath.Join(t.TempDir(), "data")
	return s
}

// TestIdentify_RefusesAnAddressThatNoRecordHolds, whoever answered.
func TestIdentify_RefusesAnAddressThatNoRecordHolds(t *testing.T) {
	for addr, words := range map[string]string{strings.Repeat("a", 300) + ":1": "at most 256 bytes", "b\x01:1": "at most 256 bytes", "a:1": "", "": ""} {
		node := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			_ = json.NewEncoder(w).Encode(front.Joining{MemberID: 2, ClusterID: "0000000000000007", Peers: map[uint64]string{1: "127.0.0.1:1", 2: addr}})
		}))
		s := settingsOf(t, 2)
		s.Join = []string{node.Listener.Addr().String()}
		id, join, err := identify(t.Context(), &s, nil, nil, nil, slog.New(slog.DiscardHandler))
		if (err == nil) != (words == "") || err != nil && !strings.Contains(err.Error(), words) || err == nil && (id != 2 || join == nil) {
			t.Errorf("%.20q: %d, %+v, %v", addr, id, join, err)
		}
		node.Close()
	}
}

// TestDiscover_RefusesPeersInClear that only DNS names.
func TestDiscover_RefusesPeersInClear(t *testing.T) {
	for host, refused := range map[string]bool{"192.0.2.1": true, "127.0.0.1": false} {
		s := settingsOf(t, 1)
		s.PeersSRV = &config.SRV{Name: "_peer._tcp.isotone.test", Count: 2, ByPriority: true}
		lookup := func(context.Context, string, string, string) (string, []*net.SRV, error) {
			return "", []*net.SRV{{Target: "127.0.0.1", Port: 2, Priority: 1}, {Target: host, Port: 1, Priority: 2}}, nil
		}
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		err = discover(t.Context(), &s, []net.Listener{ln}, lookup, slog.New(slog.DiscardHandler))
		_ = ln.Close()
		if told := err != nil && strings.Contains(err.Error(), "PEER_INSECURE=1"); told != refused || !refused && err != nil || len(s.Peers) != 2 {
			t.Errorf("%s: %v, %v", host, s.Peers, err)
		}
	}
}
