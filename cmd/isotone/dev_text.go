package main

import (
	"fmt"
	"io"
	"net"
	"strings"
	"text/tabwriter"

	"github.com/isotone/isotone/internal/host/config"
	"github.com/isotone/isotone/internal/server"
)

// devView is what the text of "isotone dev" is about.
type devView struct {
	Dir   string
	Nodes []devNode
	// Leader is the client address of the leader.
	Leader string
	// Thrift is the address of the Thrift port, or "" without one.
	Thrift string
	// Intervals: the nodes have a cluster clock.
	Intervals bool
	// Live are the names of the documents that --live has.
	Live []string
	// Source: the reader is in the directory of the module, so go run finds the examples.
	Source bool
	// Own is how the reader can run this program.
	Own string
}

// devNode is one node of it.
type devNode struct {
	ID                   uint64
	Clients, Peers, Role string
}

// hint is something to try: what it shows, and the command.
type hint struct{ what, command string }

// hintGroup is hints about one subject.
type hintGroup struct {
	title string
	hints []hint
}

// hints returns what to try. Every command works as it stands, in a shell, while the nodes run; a
// test runs them all.
func (v *devView) hints() []hintGroup {
	_, port, _ := net.SplitHostPort(v.Leader)
	other := v.Leader
	for _, n := range v.Nodes {
		if n.Clients != v.Leader {
			other = n.Clients
			break
		}
	}
	endpoint := " --endpoint " + v.Leader
	groups := []hintGroup{
		{"Timestamps", []hint{
			{"in the shell", v.Own + " timestamp" + endpoint + " | " + v.Own + " decode"},
			{"HTTP", "curl '" + v.Leader + "/timestamp?format=json'"},
			{"four, as bytes", "curl -s '" + v.Leader + "/timestamp?n=4' | xxd -c 16"},
			{"HTTP/2, TLS", "curl -k 'https://" + v.Leader + "/timestamp?format=json'"},
			{"HTTP/3, checked", v.Own + " bench -k -p h3 -t " + v.Leader + " --requests 1000"},
			{"Redis, 64 bits", "redis-cli -p " + port + " TS64"},
		}},
		{"IDs and documents, from any node", []hint{
			{"a Snowflake ID", "curl " + other + "/api/snowflake"},
			{"ten, in the shell", v.Own + " id -n 10 --endpoint " + other},
			{"live document", "curl --compressed " + other + "/live/state"},
		}},
	}
	ids := &groups[1].hints
	for _, name := range v.Live {
		*ids = append(*ids, hint{"your document", "curl --compressed " + other + "/live/" + name})
	}
	if v.Intervals {
		*ids = append(*ids, hint{"cluster clock", "curl '" + other + "/interval?format=json'"})
	}
	if v.Thrift != "" && v.Source {
		*ids = append(*ids, hint{"Thrift", "go run ./bench/thrift -d 1s -n 1 -addr " + v.Thrift})
	}
	var programs []hint
	if v.Source {
		programs = append(programs,
			hint{"Go client", "go run ./bench/client -rounds 1 -goroutines 64 " + v.Leader},
			hint{"gRPC, 64 callers", "go run -C bench/grpc . stream " + v.Leader + " 64 1"},
			hint{"transactions", "go run -C examples/bank . --memory --duration 5s --isotone " + v.Leader})
	}
	return append(groups, hintGroup{"Programs", append(programs, []hint{
		{"who leads", v.Own + " status " + v.Leader},
		{"load, checked", v.Own + " bench -t " + v.Leader + " -d 3s"},
		{"under a lock", v.Own + " lock" + endpoint + " jobs/nightly -- printenv ISOTONE_LOCK_TOKEN"},
		{"kill leaders", v.Own + " demo failover"},
	}...)})
}

// write writes the text. Nothing in it is longer than needed: it is read once, at the beginning.
func (v *devView) write(w io.Writer, color bool) error {
	var b strings.Builder
	fmt.Fprintf(&b, "Three nodes are up; data in %s\n\n", v.Dir)
	t := tabwriter.NewWriter(&b, 0, 0, 3, ' ', 0)
	fmt.Fprintln(t, "NODE\tCLIENTS\tPEERS\tROLE")
	for _, n := range v.Nodes {
		fmt.Fprintf(t, "%d\t%s\t%s\t%s\n", n.ID, n.Clients, n.Peers, n.Role)
	}
	_ = t.Flush() // into memory
	b.WriteString("\nTry, in another terminal:\n")
	width := 0
	for _, g := range v.hints() {
		for _, h := range g.hints {
			width = max(width, len(h.what))
		}
	}
	for _, g := range v.hints() {
		fmt.Fprintf(&b, "\n%s\n", painted(color, paintBold, g.title))
		for _, h := range g.hints {
			fmt.Fprintf(&b, "  %s%s   %s\n", painted(color, paintDim, h.what), strings.Repeat(" ", width-len(h.what)), painted(color, paintCyan, h.command))
		}
	}
	fmt.Fprintf(&b, "\nThe dashboard is at %s (--open opens it).\nCtrl-C ends it.\n", painted(color, paintCyan, v.dashboard()))
	_, err := io.WriteString(w, b.String())
	return err
}

// dashboard returns the address of the dashboard.
func (v *devView) dashboard() string { return "http://" + v.Leader + "/" }

// viewDev returns the text about running members with common settings.
func viewDev(members []*server.Member, dir string, s *config.Settings) *devView {
	v := &devView{Dir: dir, Leader: members[0].Addr, Intervals: s.Interval != 0, Own: ownCommand(), Source: inModule()}
	for _, source := range s.Live {
		v.Live = append(v.Live, source.Name())
	}
	for _, m := range members {
		s := m.Node.Status()
		n := devNode{ID: s.NodeID, Clients: m.Addr, Role: s.Role}
		for _, o := range s.Members {
			if o.NodeID == s.NodeID {
				n.Peers = o.PeerAddr
			}
		}
		if s.Role == "leader" {
			v.Leader = m.Addr
		}
		if v.Thrift == "" {
			v.Thrift = m.ThriftAddr
		}
		v.Nodes = append(v.Nodes, n)
	}
	return v
}
