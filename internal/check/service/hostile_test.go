//go:build linux

package service_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/client"
	"github.com/isotone/isotone/internal/auth/access"
	"github.com/isotone/isotone/internal/check/chaos"
	"github.com/isotone/isotone/internal/check/ports"
	"github.com/isotone/isotone/internal/check/trial"
	"github.com/isotone/isotone/internal/core/lincheck"
)

const (
	// hostileConnections is how many connections hostile clients of one kind hold at a time, and
	// hostileConnectionsEach those of each kind when all attack at once.
	hostileConnections, hostileConnectionsEach = 1000, 20
	// goodPause is the wait between two calls of one caller of the good client, in microseconds,
	// without HOSTILE_PAUSE.
	goodPause = 2000
)

// TestHostile_AGoodClientDoesNotNotice: hostile clients of all kinds at once, with 20 connections each, from 20 addresses, while a good client with credentials asks for timestamps over the
// Redis protocol and HTTP, makes IDs of a worker that it has leased, and opens new connections. None
// of its calls may fail or break the order. With HOSTILE_SECONDS there are also 1,000 connections of one kind after the other, and the good client's rate is measured, in
// slices of that length without and with the hostile clients, in turns, HOSTILE_ROUNDS of both:
// 80 % of it have to remain, by the median. HOSTILE_PAUSE is the pause of the good client's four
// callers in microseconds: a small one measures how much the node can still do. With HOSTILE_UNPACED hostile clients go as fast as
// they can. HOSTILE_NODES (3) is how many nodes there are. HOSTILE_ONLY names kinds, separated by commas.
func TestHostile_AGoodClientDoesNotNotice(t *testing.T) {
	measured := os.Getenv("HOSTILE_SECONDS") != ""
	slice, rounds := time.Second, 1
	kinds := hostileKinds(t)
	var attacks [][]chaos.HostileKind
	if measured {
		slice, rounds = time.Duration(trial.Number(t, "HOSTILE_SECONDS", 1, 1))*time.Second, trial.Number(t, "HOSTILE_ROUNDS", 3, 3)
		for _, k := range kinds {
			attacks = append(attacks, []chaos.HostileKind{k})
		}
	}
	if len(kinds) > 1 || !measured {
		attacks = append(attacks, kinds)
	}
	n := newHostileCluster(t, trial.Number(t, "HOSTILE_NODES", 3, 3))
	g := n.startGood(t)
	g.More(t, 200)
	table := "\n| hostile clients | connections, actions | served, refused, ended, waited | calls/s without, with | kept | slowest call |\n|---|---:|---:|---:|---:|---:|\n"
	for _, kinds := range attacks {
		s := newHostileStory(kinds)
		// Below the bound there are more rounds, because machines have other work, too.
		for i := 0; i < rounds || measured && i < 3*rounds && s.kept() < 0.8; i++ {
			if measured {
				s.without = append(s.without, g.rate(slice))
			}
			n.attack(t, g, slice, s)
		}
		table += s.line()
		for i, k := range kinds {
			if r := s.reports[i]; r.Opened == 0 || !k.MayBeServed && r.Served > 0 {
				t.Errorf("%s, of %s: %+v", k.Name, s.name(), r)
			}
		}
		if measured && s.kept() < 0.8 {
			t.Errorf("%s: the good client keeps %.0f %% of its rate", s.name(), 100*s.kept())
		}
	}
	t.Log(table)
	g.verify(t)
	for _, node := range n.Nodes {
		if rss := rss(t, node); rss > hostileMemoryMax {
			t.Errorf("node %d has %d MiB of memory", node.ID, rss>>20)
		}
	}
}

// hostileMemoryMax bounds the memory of a node at the end: what 20,000 connections may take.
const hostileMemoryMax = 1 << 30

// hostileKinds returns those that HOSTILE_ONLY names, or all.
func hostileKinds(t *testing.T) (kinds []chaos.HostileKind) {
	t.Helper()
	only := os.Getenv("HOSTILE_ONLY")
	for _, k := range chaos.HostileKinds {
		if only == "" || slices.Contains(strings.Split(only, ","), strings.ReplaceAll(k.Name, ",", "")) {
			kinds = append(kinds, k)
		}
	}
	if len(kinds) == 0 {
		t.Fatalf("HOSTILE_ONLY=%q names no kind", only)
	}
	return kinds
}

// hostileStory is what came of hostile clients of one kind, or of several at once.
type hostileStory struct {
	kinds         []chaos.HostileKind
	reports       []chaos.HostileReport // of each kind
	without, with []float64             // calls a second
	slowest       time.Duration
}

func newHostileStory(kinds []chaos.HostileKind) *hostileStory {
	return &hostileStory{kinds: kinds, reports: make([]chaos.HostileReport, len(kinds))}
}

func (s *hostileStory) name() string {
	if len(s.kinds) == 1 {
		return s.kinds[0].Name
	}
	return "all of them at once"
}

// connections returns how many each kind has.
func (s *hostileStory) connections() int {
	if len(s.kinds) == 1 {
		return hostileConnections
	}
	return hostileConnectionsEach
}

// kept returns the part of the rate that remained.
func (s *hostileStory) kept() float64 {
	var parts []float64
	for i := range s.without {
		parts = append(parts, s.with[i]/s.without[i])
	}
	return median(parts)
}

func median(list []float64) float64 {
	list = slices.Sorted(slices.Values(list))
	return list[len(list)/2]
}

func (s *hostileStory) line() string {
	rates, r := "", chaos.HostileReport{}
	for _, of := range s.reports {
		r.Add(of)
	}
	if s.without != nil {
		kept := s.kept()
		rates = fmt.Sprintf("%.0f, %.0f | %.0f %%", median(s.without), median(s.with), 100*kept)
	} else {
		rates = fmt.Sprintf("–, %.0f | –", median(s.with))
	}
	return fmt.Sprintf("| %s | %d, %d | %d, %d, %d, %d | %s | %v |\n", s.name(), r.Opened, r.Actions, r.Served, r.Refused, r.Ended, r.Waited, rates, s.slowest.Round(time.Millisecond))
}

// hostileCluster is a cluster whose nodes have a list of users, TLS and Thrift.
type hostileCluster struct {
	*chaos.Cluster
	thrift            []string
	dir               string
	good, guest, late string // secrets
	logs              int
}

func newHostileCluster(t *testing.T, nodes int) *hostileCluster {
	t.Helper()
	dir := t.TempDir()
	cert := selfSign(t, "node")
	put(t, filepath.Join(dir, "tls.crt"), cert.cert)
	put(t, filepath.Join(dir, "tls.key"), cert.key)
	o := trial.Options()
	o.Nodes, o.Env = nodes, map[string]string{
		"TLS_CERT": filepath.Join(dir, "tls.crt"), "TLS_KEY": filepath.Join(dir, "tls.key"), "ACL_FILE": filepath.Join(dir, "users.json"), "ANONYMOUS": "timestamps,ids,live",
	}
	n := &hostileCluster{Cluster: chaos.NewCluster(t, o), dir: dir, good: access.NewSecret(), guest: access.NewSecret(), late: access.NewSecret()}
	for _, node := range n.Nodes {
		port, err := ports.Free(1)
		if err != nil {
			t.Fatal(err)
		}
		node.Env["THRIFT_PORT"] = fmt.Sprint(port)
		n.thrift = append(n.thrift, fmt.Sprintf("127.0.0.1:%d", port))
	}
	limits := access.Limits{Requests: 50, Timestamps: 100_000, Connections: 100, Streams: 16, Workers: 16}
	few := limits
	few.Connections = 0
	user := func(secret string, l *access.Limits, roles ...string) map[string]any {
		u := map[string]any{"roles": roles, "secrets": []string{access.HashSecret(secret)}}
		if l != nil {
			u["limits"] = l
		}
		return u
	}
	list, err := json.Marshal(map[string]any{
		"users": map[string]any{"good": user(n.good, nil, "all"), "late": user(n.late, nil, "timestamps"), "guest": user(n.guest, &few, "timestamps", "ids", "workers")},
		// The good client has the address 127.0.0.1, and these limits for its connections too.
		"addressLimits": limits,
	})
	if err != nil {
		t.Fatal(err)
	}
	put(t, o.Env["ACL_FILE"], list)
	n.Start()
	n.WaitReady()
	return n
}

// attack measures the good client while hostile clients do what they do.
func (n *hostileCluster) attack(t *testing.T, g *goodClient, slice time.Duration, s *hostileStory) {
	t.Helper()
	g.slowest.Store(0)
	var attackers []*chaos.Process
	guesses := false
	for _, k := range s.kinds {
		n.logs++
		guesses = guesses || strings.HasPrefix(k.Name, "wrong passwords")
		attackers = append(attackers, chaos.RunHostile(t, chaos.Hostile{
			Kind: k.Name, Addrs: n.Addrs(), Thrift: n.thrift, Guest: [2]string{"guest", n.guest},
			Unpaced: os.Getenv("HOSTILE_UNPACED") != "", Connections: s.connections(), For: slice * 7 / 4, ActionsMin: hostileActionsMin,
		}, filepath.Join(n.dir, fmt.Sprintf("hostile%d.log", n.logs))))
	}
	time.Sleep(slice / 4)
	if guesses && n.late != "" {
		n.askLate(t)
	}
	time.Sleep(slice / 4) // most connections are open now
	s.with = append(s.with, g.rate(slice))
	for i, p := range attackers {
		s.reports[i].Add(chaos.WaitHostile(t, p))
	}
	s.slowest = max(s.slowest, time.Duration(g.slowest.Load()))
}

// hostileActionsMin is how much hostile clients of a kind do at least, on a busy machine.
const hostileActionsMin = 30

// askLate asks as a user whom the node has never seen, while others guess secrets.
func (n *hostileCluster) askLate(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), trial.AnswerTimeout)
	defer cancel()
	began := time.Now()
	c, err := client.NewWith(ctx, client.Options{Addrs: n.Addrs(), DialTimeout: trial.AnswerTimeout, Credentials: client.StaticCredentials("late", n.late)})
	if err == nil {
		_, err = c.Timestamp(ctx)
		_ = c.Close()
	}
	if err != nil {
		t.Errorf("a user whom the node has never seen: %v", err)
	}
	t.Logf("a user whom the node has never seen has a timestamp after %v", time.Since(began).Round(time.Millisecond))
	n.late = ""
}

// goodClient has credentials, and asks all the time.
type goodClient struct {
	node      *hostileCluster
	client    *client.Client
	generator *client.Generator
	online    *lincheck.Online
	stop      context.CancelFunc
	work      sync.WaitGroup

	calls, slowest atomic.Int64
	mu             sync.Mutex
	faults         []error
}

func (n *hostileCluster) dialGood(ctx context.Context) (*client.Client, error) {
	return client.NewWith(ctx, client.Options{Addrs: n.Addrs(), Credentials: client.StaticCredentials("good", n.good)})
}

func (n *hostileCluster) startGood(t *testing.T) *goodClient {
	t.Helper()
	g := &goodClient{node: n, online: lincheck.NewOnline(0)}
	ctx, cancel := context.WithTimeout(t.Context(), chaos.ReadyTimeout)
	defer cancel()
	var err error
	if g.client, err = n.dialGood(ctx); err != nil {
		t.Fatal(err)
	}
	if g.generator, err = g.client.NewGenerator(ctx, client.GeneratorOptions{Lease: time.Second}); err != nil {
		t.Fatal(err)
	}
	running, stop := context.WithCancel(context.Background())
	g.stop = stop
	pause := time.Duration(trial.Number(t, "HOSTILE_PAUSE", goodPause, goodPause)) * time.Microsecond
	for range 2 {
		g.repeat(running, pause, g.askClient)
	}
	for range 2 {
		h := &httpCaller{node: n, addr: n.Addrs()[0]}
		t.Cleanup(h.close)
		g.repeat(running, pause, func(ctx context.Context) error { return g.askHTTP(ctx, h) })
	}
	g.repeat(running, 10*time.Millisecond, func(ctx context.Context) error {
		_, err := g.generator.Next(ctx)
		return err
	})
	g.repeat(running, 50*time.Millisecond, g.askAnew)
	t.Cleanup(g.end)
	return g
}

// repeat calls again and again, each time with a deadline.
func (g *goodClient) repeat(running context.Context, pause time.Duration, call func(context.Context) error) {
	g.work.Go(func() {
		for ; running.Err() == nil; time.Sleep(pause) {
			ctx, cancel := context.WithTimeout(context.Background(), trial.CallDeadline())
			began := time.Now()
			err := call(ctx)
			cancel()
			g.note(time.Since(began), err)
		}
	})
}

func (g *goodClient) note(took time.Duration, err error) {
	g.calls.Add(1)
	g.mu.Lock()
	defer g.mu.Unlock()
	g.slowest.Store(max(g.slowest.Load(), int64(took)))
	if err != nil && len(g.faults) < 10 {
		g.faults = append(g.faults, fmt.Errorf("at %s: %w", time.Now().UTC().Format(time.RFC3339Nano), err))
	}
}

func (g *goodClient) askClient(ctx context.Context) error {
	floor := g.online.Begin()
	r, err := g.client.Timestamps(ctx, 2)
	if err != nil {
		return err
	}
	return g.online.End(floor, r)
}

// httpCaller asks the leader on a connection that stays open as long as it leads.
type httpCaller struct {
	node *hostileCluster
	addr string
	conn *chaos.Conn // nil: none is open
}

func (h *httpCaller) close() {
	if h.conn != nil {
		_ = h.conn.Close()
		h.conn = nil
	}
}

// ask sends one request to the node that is taken for the leader.
func (h *httpCaller) ask(deadline time.Time) (a *chaos.Answer, err error) {
	if h.conn == nil {
		if h.conn, err = chaos.Dial(h.addr, time.Until(deadline)); err != nil {
			h.conn = nil
			return nil, err
		}
	}
	_ = h.conn.SetDeadline(deadline)
	if _, err := fmt.Fprintf(h.conn, "GET /timestamp?n=2 HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer good~%s\r\n\r\n", h.node.good); err != nil {
		return nil, err
	}
	return h.conn.Receive()
}

// askHTTP asks until the leader answers, as programs without the Go client do: it goes where Isotone-Leader says, and
// asks again while there is no leader. Nothing else may be refused, and no connection may break.
func (g *goodClient) askHTTP(ctx context.Context, h *httpCaller) error {
	deadline, _ := ctx.Deadline()
	for {
		floor := g.online.Begin()
		a, err := h.ask(deadline)
		if err != nil {
			h.close()
			return err
		}
		if a.Status == 200 {
			r, err := a.Range()
			if err != nil {
				return err
			}
			return g.online.End(floor, r)
		}
		leader := a.Header.Get("Isotone-Leader")
		if leader == "" && !strings.Contains(string(a.Body), string(isotone.CodeNoLeader)) || time.Now().After(deadline) {
			return fmt.Errorf("HTTP: %d %s", a.Status, a.Body)
		}
		if leader != "" && leader != h.addr {
			h.close()
			h.addr = leader
		}
	}
}

// askAnew asks as another client of the same user, on a connection of its own.
func (g *goodClient) askAnew(ctx context.Context) error {
	c, err := g.node.dialGood(ctx)
	if err != nil {
		return err
	}
	defer c.Close()
	_, err = c.Timestamp(ctx)
	return err
}

// rate returns the calls per second from now on.
func (g *goodClient) rate(during time.Duration) float64 {
	began, before := time.Now(), g.calls.Load()
	time.Sleep(during)
	return float64(g.calls.Load()-before) / time.Since(began).Seconds()
}

func (g *goodClient) More(t *testing.T, calls int64) {
	t.Helper()
	trial.WantAnswers(t, &g.calls, calls)
}

func (g *goodClient) end() {
	g.stop()
	g.work.Wait()
	_ = g.generator.Close()
	_ = g.client.Close()
}

// verify ends the load. No call may have failed or received a wrong answer.
func (g *goodClient) verify(t *testing.T) {
	t.Helper()
	g.stop()
	g.work.Wait()
	t.Logf("%d calls of the good client, %d failed", g.calls.Load(), len(g.faults))
	if err := errors.Join(g.faults...); err != nil {
		t.Error(err)
	}
	if s := g.online.Stats(); s.Violations > 0 || s.Unverified > 0 {
		t.Errorf("%+v", s)
	}
}
