// Command compare measures how many timestamps a second PD and Isotone give to the callers of one
// process, in turns on one machine: PD by PD's Go client, Isotone by the same client at the nodes' own PD_PORT and through
// isotone-pd, and Isotone by its own client. compare.sh starts the servers and runs it.
//
// PD answers on the strength of a lease, so the lease mode of Isotone is what is like it; the quorum mode
// promises more.
//
// A caller asks for one timestamp at a time, as each transaction does. Every answer is checked to be
// above the caller's previous one.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"text/tabwriter"
	"time"

	"github.com/alecthomas/kong"
	"github.com/pingcap/log"
	"go.uber.org/zap/zapcore"
)

type command struct {
	PD         []string      `name:"pd" placeholder:"HOST:PORT" help:"Client addresses of a PD cluster. Default: PD is left out."`
	Quorum     []string      `name:"quorum" placeholder:"HOST:PORT" help:"Addresses of isotone-pd with --mode quorum."`
	Lease      []string      `name:"lease" placeholder:"HOST:PORT" help:"Addresses of isotone-pd with --mode lease."`
	NodeLease  []string      `name:"node-lease" placeholder:"HOST:PORT" help:"Addresses of nodes at their own PD_PORT, with READ_MODE=lease."`
	NodeQuorum []string      `name:"node-quorum" placeholder:"HOST:PORT" help:"Addresses of nodes at their own PD_PORT, with READ_MODE=quorum."`
	Isotone    []string      `name:"isotone" placeholder:"HOST:PORT" help:"Client addresses of the Isotone nodes behind it, for its own client in both modes."`
	Callers    []int         `name:"callers" default:"1,64,1000,10000" help:"Numbers of goroutines that ask at the same time."`
	InFlight   int           `name:"in-flight" default:"1" help:"Requests that each caller keeps under way. With more than 1, by the clients' asynchronous calls."`
	Rounds     int           `name:"rounds" default:"3" help:"Measurements of each, in turns."`
	Duration   time.Duration `name:"duration" default:"5s" help:"Length of each measurement."`
	Warmup     time.Duration `name:"warmup" default:"1s" help:"Load for this long before each."`
}

func main() {
	var c command
	kong.Parse(&c, kong.Description("Measure PD and Isotone in turns; see the top of main.go and compare.sh."))
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	log.SetLevel(zapcore.FatalLevel) // of PD's client
	if err := c.run(ctx, os.Stdout); err != nil {
		fmt.Fprintf(os.Stderr, "compare: %v\n", err)
		os.Exit(1)
	}
}

// The bounds of flags: more callers than this do not fit into memory, and a longer run is a mistake.
const (
	callersMax  = 1 << 20
	inFlightMax = 1 << 12
	roundsMax   = 1000
	durationMax = time.Hour
)

func (c *command) check() error {
	switch {
	case len(c.PD)+len(c.NodeLease)+len(c.NodeQuorum)+len(c.Quorum)+len(c.Lease)+len(c.Isotone) == 0:
		return errors.New("want --pd, --node-lease, --node-quorum, --quorum, --lease or --isotone")
	case len(c.Callers) == 0 || slices.Min(c.Callers) < 1 || slices.Max(c.Callers) > callersMax:
		return fmt.Errorf("--callers: want numbers from 1 to %d", callersMax)
	case c.InFlight < 1 || c.InFlight > inFlightMax:
		return fmt.Errorf("--in-flight %d: want 1 to %d", c.InFlight, inFlightMax)
	case c.Rounds < 1 || c.Rounds > roundsMax:
		return fmt.Errorf("--rounds %d: want 1 to %d", c.Rounds, roundsMax)
	case c.Duration <= 0 || c.Duration > durationMax || c.Warmup < 0 || c.Warmup > durationMax:
		return fmt.Errorf("--duration, --warmup: want up to %v", durationMax)
	}
	return nil
}

func (c *command) run(ctx context.Context, out io.Writer) error {
	if err := c.check(); err != nil {
		return err
	}
	systems, err := c.connect(ctx)
	defer func() {
		for _, s := range systems {
			s.close()
		}
	}()
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "%d rounds of %v, in turns. The figures are the median round's, and the slowest and fastest rate.\n\n", c.Rounds, c.Duration)
	table := tabwriter.NewWriter(out, 0, 8, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(table, "callers\tsystem\ttimestamps/s\tslowest\tfastest\tp50\tp99\tfailed\t")
	for _, callers := range c.Callers {
		results := make([][]result, len(systems))
		for range c.Rounds {
			for i, s := range systems {
				r, err := measure(ctx, s, callers, c.InFlight, c.Warmup, c.Duration)
				if err != nil {
					return fmt.Errorf("%s, %d callers: %w", s.name, callers, err)
				}
				results[i] = append(results[i], r)
			}
		}
		for i, s := range systems {
			printRow(table, callers, s.name, results[i])
		}
		if err := table.Flush(); err != nil {
			return err
		}
	}
	return nil
}

func printRow(w io.Writer, callers int, name string, rounds []result) {
	slices.SortFunc(rounds, func(a, b result) int { return int(a.rate() - b.rate()) })
	middle := rounds[len(rounds)/2]
	failed := uint64(0)
	for _, r := range rounds {
		failed += r.failed
	}
	fmt.Fprintf(w, "%d\t%s\t%.0f\t%.0f\t%.0f\t%v\t%v\t%d\t\n", callers, name, middle.rate(), rounds[0].rate(), rounds[len(rounds)-1].rate(),
		middle.quantile(0.5), middle.quantile(0.99), failed)
}

// urls returns PD's form of addresses.
func urls(addrs []string) []string {
	var list []string
	for _, a := range addrs {
		if !strings.Contains(a, "://") {
			a = "http://" + a
		}
		list = append(list, a)
	}
	return list
}
