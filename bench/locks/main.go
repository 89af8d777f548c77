// Locks measures sessions, locks and frontiers against a cluster of three nodes that it starts on this machine: how long an acquisition takes, how soon the next holder has a
// lock that is released or whose holder is killed, how soon a frontier goes on after a writer is killed, how far it is behind with many writers, and what idle sessions cost the leader.
//
//	go run ./bench/locks [--json] [--only NAME,...]
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/isotone/isotone/client"
	"github.com/isotone/isotone/internal/check/cluster"
)

func main() {
	if len(os.Args) == 4 && (os.Args[1] == victimHolds || os.Args[1] == victimWrites) {
		if err := victim(os.Args[1], os.Args[2], os.Args[3]); err != nil {
			fmt.Fprintln(os.Stderr, "locks:", err)
			os.Exit(1)
		}
		return
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, os.Args[1:], os.Stdout); err != nil {
		if !errors.Is(err, flag.ErrHelp) {
			fmt.Fprintln(os.Stderr, "locks:", err)
		}
		os.Exit(1)
	}
}

// figure is one line of the result. Times are milliseconds.
type figure struct {
	Name string  `json:"name"`
	N    int     `json:"n,omitempty"`
	P50  float64 `json:"p50_ms,omitempty"`
	P99  float64 `json:"p99_ms,omitempty"`
	Max  float64 `json:"max_ms,omitempty"`
	// Rate is a number a second, and Note says what else was measured.
	Rate float64 `json:"rate_per_s,omitempty"`
	Note string  `json:"note,omitempty"`
}

// timed returns the figure of some times.
func timed(name string, times []time.Duration) figure {
	slices.Sort(times)
	at := func(q float64) float64 {
		return float64(times[min(len(times)-1, int(q*float64(len(times))))]) / float64(time.Millisecond)
	}
	return figure{Name: name, N: len(times), P50: at(0.5), P99: at(0.99), Max: at(1)}
}

// bench is what all measurements use.
type bench struct {
	nodes *cluster.Cluster
	c     *client.Client
	addrs []string
}

var measurements = []struct {
	name    string
	measure func(context.Context, *bench) (figure, error)
}{
	{"acquire", acquire},
	{"handover", handover},
	{"claims", claims},
	{"killed-holder", killedHolder},
	{"killed-writer", killedWriter},
	{"lag", lag},
	{"sessions", sessions},
}

func run(ctx context.Context, args []string, out io.Writer) error {
	flags := flag.NewFlagSet("locks", flag.ContinueOnError)
	asJSON := flags.Bool("json", false, "print a line of JSON for each figure")
	only := flags.String("only", "", "measure these only, separated by commas: acquire, handover, claims, killed-holder, killed-writer, lag, sessions")
	if err := flags.Parse(args); err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "isotone-locks-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	path, err := cluster.Build(ctx, dir)
	if err != nil {
		return err
	}
	b := &bench{}
	if b.nodes, err = cluster.New(3, dir, []string{path}, "MAX_CONNECTIONS=20000"); err != nil {
		return err
	}
	defer func() { _ = b.nodes.Kill() }()
	if err := errors.Join(b.nodes.Start(), b.nodes.WaitReady(ctx)); err != nil {
		return err
	}
	b.addrs = b.nodes.Addrs()
	if b.c, err = client.New(ctx, b.addrs...); err != nil {
		return err
	}
	defer b.c.Close()
	for _, m := range measurements {
		if *only != "" && !slices.Contains(strings.Split(*only, ","), m.name) {
			continue
		}
		f, err := m.measure(ctx, b)
		if err != nil {
			return fmt.Errorf("%s: %w", m.name, err)
		}
		print(out, f, *asJSON)
	}
	return nil
}

func print(out io.Writer, f figure, asJSON bool) {
	if asJSON {
		line, _ := json.Marshal(f)
		fmt.Fprintln(out, string(line))
		return
	}
	fmt.Fprintf(out, "%-46s", f.Name)
	if f.N > 0 {
		fmt.Fprintf(out, " n %6d   p50 %8.2f ms   p99 %8.2f ms   max %8.2f ms", f.N, f.P50, f.P99, f.Max)
	}
	if f.Rate > 0 {
		fmt.Fprintf(out, " %10.0f /s", f.Rate)
	}
	fmt.Fprintln(out, "  "+f.Note)
}

// The first argument of a process that is to be killed.
const victimHolds, victimWrites = "victim-holds", "victim-writes"

// victim holds a lock, or has a write that is not decided, until it is killed.
func victim(how, addr, name string) error {
	ctx := context.Background()
	c, err := client.New(ctx, addr)
	if err != nil {
		return err
	}
	defer c.Close()
	if how == victimHolds {
		s, err := c.NewSession(ctx, client.SessionOptions{Linger: 100 * time.Millisecond})
		if err != nil {
			return err
		}
		if _, err := s.Mutex(name).Lock(ctx); err != nil {
			return err
		}
		fmt.Println("holds")
	} else {
		w, err := c.NewFrontier(ctx, name, client.FrontierOptions{Fence: noFence{}})
		if err != nil {
			return err
		}
		o, err := w.Begin(ctx)
		if err != nil {
			return err
		}
		fmt.Println(o.Stamp())
	}
	select {}
}

// startVictim starts a process that is to be killed, and returns what it says when it is ready.
func (b *bench) startVictim(ctx context.Context, how, name string) (*exec.Cmd, string, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, "", err
	}
	cmd := exec.CommandContext(ctx, self, how, b.addrs[0], name)
	cmd.Stderr = os.Stderr
	said, err := cmd.StdoutPipe()
	if err != nil {
		return nil, "", err
	}
	if err := cmd.Start(); err != nil {
		return nil, "", err
	}
	line, err := bufio.NewReader(said).ReadString('\n')
	return cmd, strings.TrimSpace(line), err
}

// usage returns the processor time and the resident memory of the leader.
func (b *bench) usage(ctx context.Context) (cpu time.Duration, memory uint64, err error) {
	leader, err := b.nodes.Leader(ctx)
	if err != nil {
		return 0, 0, err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+leader.Addr+"/metrics", nil)
	if err != nil {
		return 0, 0, err
	}
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		return 0, 0, err
	}
	defer answer.Body.Close()
	lines := bufio.NewScanner(answer.Body)
	for lines.Scan() {
		name, value, _ := strings.Cut(lines.Text(), " ")
		n, _ := strconv.ParseFloat(value, 64)
		switch name {
		case "process_cpu_seconds_total":
			cpu = time.Duration(n * float64(time.Second))
		case "process_resident_memory_bytes":
			memory = uint64(n)
		}
	}
	return cpu, memory, lines.Err()
}
