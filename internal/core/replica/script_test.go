package replica_test

import (
	cryptorand "crypto/rand"
	"fmt"
	"io"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"
	"go.etcd.io/raft/v3/raftpb"

	"github.com/isotone/isotone/internal/core/oracle"
	"github.com/isotone/isotone/internal/core/replica"
)

// The scripts in testdata/scripts show the protocol message by message. Each is a list of
// commands with their expected output; the README there explains both.
//
//	go test ./internal/core/replica -run TestScripts/round           # one script
//	go test ./internal/core/replica -run TestScripts/round -rewrite  # replace the expected output
//
// A script is deterministic. Raft draws each election timeout from 20 to 39 ticks; in a
// script it is always 25, so the script decides who campaigns by giving that node more ticks.

func TestScripts(t *testing.T) {
	defer func(r io.Reader) { cryptorand.Reader = r }(cryptorand.Reader)
	cryptorand.Reader = sameTimeout{}
	paths, err := filepath.Glob("testdata/scripts/*.txt")
	if err != nil || len(paths) == 0 {
		t.Fatal("no scripts:", err)
	}
	for _, path := range paths {
		t.Run(strings.TrimSuffix(filepath.Base(path), ".txt"), func(t *testing.T) {
			s := &script{seen: map[uint64]*seen{}, backups: map[uint64]disk{}}
			datadriven.RunTest(t, path, s.run)
		})
	}
}

// sameTimeout makes all election timeouts electionTicks + 5 = 25 ticks.
type sameTimeout struct{}

func (sameTimeout) Read(b []byte) (int, error) {
	for i := range b {
		b[i] = 5
	}
	return len(b), nil
}

// script runs the commands of one file on one cluster.
type script struct {
	*cluster
	out strings.Builder
	// began is the cluster's clock at the start.
	began time.Duration
	// lost says whether a message gets lost; nil for none.
	lost func(m *raftpb.Message) bool
	// sent are the messages of the current turn.
	sent []string
	// quiet leaves out messages, writes and turns.
	quiet bool
	seen  map[uint64]*seen
	// backups are copies of disks, by node.
	backups map[uint64]disk
}

// seen is what the output has shown of a node.
type seen struct {
	replica        *replica.Replica
	state          string
	write          *replica.Write
	answers        map[uint64]bool
	rounds, leases int
}

// args are the arguments of a command.
type args map[string]string

func (s *script) run(t *testing.T, d *datadriven.TestData) string {
	a := args{}
	for _, arg := range d.CmdArgs {
		a[arg.Key] = strings.Join(arg.Vals, ",")
	}
	c, ok := commands[d.Cmd]
	if !ok {
		d.Fatalf(t, "unknown command %q", d.Cmd)
	}
	for name := range a {
		if !slices.Contains(strings.Fields(c.args+" quiet"), name) {
			d.Fatalf(t, "%s has no argument %q: it takes %s", d.Cmd, name, c.args)
		}
	}
	if s.cluster == nil && !c.creates {
		d.Fatalf(t, "a script begins with cluster or founders")
	}
	if s.cluster != nil {
		s.t = t
	}
	s.out.Reset()
	s.quiet = a.has("quiet")
	c.run(s, t, a)
	return s.out.String()
}

func (s *script) printf(format string, v ...any) {
	s.out.WriteString(shortIDs(fmt.Sprintf(format+"\n", v...)))
}

// shortIDs writes the ID of a member that replaced another as in 3.1.
func shortIDs(text string) string {
	return longNumber.ReplaceAllStringFunc(text, func(word string) string {
		id, err := strconv.ParseUint(word, 10, 64)
		if err != nil || oracle.GenerationOf(id) == 0 {
			return word
		}
		return fmt.Sprintf("%d.%d", oracle.NodeOf(id), oracle.GenerationOf(id))
	})
}

var longNumber = regexp.MustCompile(`\b\d{15,20}\b`)

// adopt takes over a new cluster.
func (s *script) adopt(c *cluster) {
	s.cluster, s.began = c, c.mono
	s.fatal = func(n *node, err error) { s.printf("  %d: stops: %v", n.id, err) }
	s.tap()
}

// tap notes every message that is sent. A command that changes which ones get lost calls
// it again.
func (s *script) tap() {
	s.lost = s.drop
	s.drop = func(m *raftpb.Message) bool {
		lost := s.lost != nil && s.lost(m)
		if m.Type != nil { // else it stands for a clock reading
			s.note(m, lost)
		}
		return lost
	}
}

// note adds a message to those of this turn, or a recipient to the latest one.
func (s *script) note(m *raftpb.Message, lost bool) {
	body := s.message(m)
	if lost {
		body += " (lost)"
	}
	if n := len(s.sent); n > 0 {
		head, latest, _ := strings.Cut(s.sent[n-1], " ")
		from, to, _ := strings.Cut(head, "->")
		if latest == body && from == fmt.Sprint(m.GetFrom()) && !strings.HasSuffix(","+to, fmt.Sprintf(",%d", m.GetTo())) {
			s.sent[n-1] = fmt.Sprintf("%s,%d %s", head, m.GetTo(), body)
			return
		}
	}
	s.sent = append(s.sent, fmt.Sprintf("%d->%d %s", m.GetFrom(), m.GetTo(), body))
}

// step runs one turn of a node and shows its effects. It leaves out a tick without effects.
func (s *script) step(n *node, what string, in *replica.Input) {
	before := s.out.Len()
	if !s.quiet {
		s.printf("> %d: %s", n.id, what)
	}
	header := s.out.Len()
	s.turn(n, in)
	if s.report(n); s.out.Len() == header && in.Ticks == 1 {
		rest := s.out.String()[:before]
		s.out.Reset()
		s.out.WriteString(rest)
	}
}

// report shows what has changed at a node.
func (s *script) report(n *node) {
	was := s.seen[n.id]
	if was == nil || was.replica != n.Replica {
		was = &seen{replica: n.Replica, answers: map[uint64]bool{}, rounds: n.rounds, leases: len(n.leases)}
		s.seen[n.id] = was
	}
	if state := s.state(n); state != was.state && !n.down {
		s.printf("  %d: %s", n.id, state)
		was.state = state
	}
	if n.rounds > was.rounds && !s.quiet {
		s.printf("  %d: rounds confirmed: %d", n.id, n.rounds-was.rounds)
	}
	was.rounds = n.rounds
	for token := range s.token + 1 {
		if a := n.answers[token]; a != nil && a.err != nil && !was.answers[token] {
			was.answers[token] = true
			s.printf("  %d: answer to request %d: %s", n.id, token, s.answer(a))
		}
	}
	for _, a := range n.leases[was.leases:] {
		s.printf("  %d: answer to request %d: %s", n.id, a.Token, s.leaseAnswer(a))
	}
	was.leases = len(n.leases)
	if n.flying != nil && n.flying != was.write && !s.quiet {
		s.printf("  %d: writes %s", n.id, s.write(n.flying))
	}
	was.write = n.flying
	for _, m := range s.sent {
		if !s.quiet {
			s.printf("  %s", m)
		}
	}
	s.sent = s.sent[:0]
}

// reportAll shows what has changed after the harness ran several nodes.
func (s *script) reportAll() {
	for _, n := range s.running() {
		s.report(n)
	}
}

// receive delivers the matching messages and all hellos for a node, and reports whether there
// was anything to do. With disk it also finishes the node's write.
func (s *script) receive(n *node, match func(m *raftpb.Message) bool, disk bool) bool {
	in := &replica.Input{}
	var what []string
	if disk && n.flying != nil {
		n.disk.save(n.flying)
		in.Persisted, n.flying = n.flying, nil
		what = append(what, "write done")
	}
	var rest []*raftpb.Message
	for _, m := range n.inbox {
		if !match(m) {
			rest = append(rest, m)
			continue
		}
		in.Messages = append(in.Messages, m)
		what = append(what, fmt.Sprintf("%s from %d", kind(m), m.GetFrom()))
	}
	n.inbox = rest
	if len(in.Messages)+len(what) == 0 && len(n.hellos) == 0 {
		return false
	}
	for _, h := range n.hellos {
		what = append(what, fmt.Sprintf("hello from %d (%s)", h.NodeID, stages[h.Stage]))
	}
	in.Hellos, n.hellos = n.hellos, nil
	s.step(n, strings.Join(slices.Compact(what), ", "), in)
	return true
}

// settleAll delivers until nothing is left to do.
func (s *script) settleAll() {
	if s.quiet {
		s.settle()
		s.reportAll()
		return
	}
	for busy := true; busy; {
		busy = false
		for _, n := range s.running() {
			busy = s.receive(n, func(*raftpb.Message) bool { return true }, !n.stalled) || busy
		}
	}
}

func (a args) has(name string) bool { _, ok := a[name]; return ok }

// number returns an argument, or none if it is missing.
func (a args) number(t *testing.T, name string, none uint64) uint64 {
	t.Helper()
	if !a.has(name) {
		return none
	}
	return parseNumber(t, name, a[name])
}

// parseNumber parses a number; 3.1 is the ID of the first member that replaced node 3.
func parseNumber(t *testing.T, name, text string) uint64 {
	t.Helper()
	node, generation, dotted := strings.Cut(text, ".")
	n, err := strconv.ParseUint(node, 10, 64)
	if err == nil && dotted {
		var g uint64
		g, err = strconv.ParseUint(generation, 10, 16)
		n = oracle.MemberID(n, g)
	}
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return n
}

// numbers returns a list such as 1,2,3.
func (a args) numbers(t *testing.T, name string) (list []uint64) {
	t.Helper()
	for _, word := range strings.FieldsFunc(a[name], func(r rune) bool { return r == ',' }) {
		list = append(list, parseNumber(t, name, word))
	}
	return list
}

// duration returns an argument such as 50ms, -2h or 100y.
func (a args) duration(t *testing.T, name string) time.Duration {
	t.Helper()
	if years, ok := strings.CutSuffix(a[name], "y"); ok {
		n, err := strconv.Atoi(years)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		return time.Duration(n) * year
	}
	d, err := time.ParseDuration(a[name])
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return d
}

// node returns the node that the argument names.
func (s *script) node(t *testing.T, a args, name string) *node {
	t.Helper()
	id := a.number(t, name, 0)
	if s.nodes[id] == nil {
		t.Fatalf("%s=%s: there is no such node", name, a[name])
	}
	return s.nodes[id]
}

// named returns the nodes that the argument node names; without it, all running ones.
func (s *script) named(t *testing.T, a args) (list []*node) {
	t.Helper()
	if !a.has("node") {
		return s.running()
	}
	for _, id := range a.numbers(t, "node") {
		if s.nodes[id] == nil {
			t.Fatalf("node=%s: there is no node %d", a["node"], id)
		}
		list = append(list, s.nodes[id])
	}
	return list
}
