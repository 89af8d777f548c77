// Package testnode runs a node in the process of a test. Only tests import it.
package testnode

import (
	"log/slog"
	"net/http"
	"sync"
	"testing"

	"github.com/isotone/isotone/internal/check/await"
	"github.com/isotone/isotone/internal/check/rig"
	"github.com/isotone/isotone/internal/host/config"
	"github.com/isotone/isotone/internal/server"
)

// Run runs a node of its own on loopback, with an admin port, until stop or the end of
// the test.
func Run(t *testing.T, change func(*config.Settings)) (stop func(), client, admin string) {
	t.Helper()
	stop, so, _ := RunSockets(t, change)
	return stop, "http://" + so.HTTP.Addr().String(), "http://" + so.Admin.Addr().String()
}

// RunSockets is Run that returns the node and what it listens on.
func RunSockets(t *testing.T, change func(*config.Settings)) (stop func(), so server.Sockets, m *server.Member) {
	t.Helper()
	t.Cleanup(http.DefaultClient.CloseIdleConnections)
	s := config.Default()
	s.HTTPHost, s.HTTPPort, s.RaftAddr, s.ThriftPort, s.DataDir = "127.0.0.1", 0, "127.0.0.1:0", 0, t.TempDir()
	s.AdminAddr, s.Peers = "127.0.0.1:0", map[uint64]string{}
	if change != nil {
		change(&s)
	}
	var err error
	so, err = server.Listen(&s)
	if err != nil {
		t.Fatal(err)
	}
	s.Peers[1] = so.Peer.Addr().String()
	m, err = server.Start(&s, so, server.Options{Version: "test", Loops: 2}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	stop = sync.OnceFunc(func() {
		if err := m.Close(); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(stop)
	return stop, so, m
}

// Node is a node with a list of users.
type Node struct {
	Client, Admin, Metrics, Thrift string // addresses
	Users                          *rig.UserList
	Member                         *server.Member
}

// Guarded runs a node with that list; "": none.
func Guarded(t *testing.T, text string, change func(*config.Settings)) *Node {
	t.Helper()
	n := &Node{}
	_, so, m := RunSockets(t, func(s *config.Settings) {
		s.MetricsAddr = "127.0.0.1:0"
		if text != "" {
			n.Users = rig.NewUserList(t, text)
			s.ACLFile = n.Users.File
		}
		if change != nil {
			change(s)
		}
	})
	n.Client, n.Admin, n.Metrics, n.Thrift = so.HTTP.Addr().String(), so.Admin.Addr().String(), so.Metrics.Addr().String(), so.Thrift.Addr().String()
	n.Member = m
	await.Until(t, "the node is ready", func() bool {
		status, _ := rig.Fetch(t, "http://"+n.Admin+"/readyz")
		return status == 200
	})
	return n
}
