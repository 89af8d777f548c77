// Latency measures the one-way latency of messages that one goroutine sends to another at a constant
// rate: through a ring of package disruptor, a channel, and go-disruptor. The load is open: a
// latency begins when its message was due, not when the sender came to it. bench/disruptor.sh
// latency runs it.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	var usage usageError
	switch {
	case err == nil || errors.Is(err, flag.ErrHelp):
	case errors.As(err, &usage):
		fmt.Fprintln(os.Stderr, "latency:", err)
		os.Exit(2)
	default:
		fmt.Fprintln(os.Stderr, "latency:", err)
		os.Exit(1)
	}
}

// usageError is a flag that cannot be used.
type usageError struct{ error }

const (
	rateMax = 10_000_000 // a message every 100 ns, about two readings of the clock
	procMax = 1024
	// messagesMax bounds the memory of a measurement: 8 bytes for each message.
	messagesMax = 100_000_000
)

// options say what to measure.
type options struct {
	rate   int
	length time.Duration
	procs  []int
	pins   []bool
	paths  []path
	asJSON bool
}

func (o options) messages() int { return int(float64(o.rate) * o.length.Seconds()) }

func parse(args []string, errOut io.Writer) (o options, err error) {
	flags := flag.NewFlagSet("latency", flag.ContinueOnError)
	flags.SetOutput(errOut)
	flags.IntVar(&o.rate, "rate", 100_000, "messages per second")
	flags.DurationVar(&o.length, "time", 2*time.Second, "length of each measurement; the first tenth is not counted")
	procs := flags.String("procs", "1,2,3", "values of GOMAXPROCS")
	pin := flags.String("pin", "both", "yes: each goroutine has a thread on a CPU of its own (Linux); no; or both")
	names := flags.String("paths", strings.Join(pathNames(), ","), "what messages go through")
	flags.BoolVar(&o.asJSON, "json", false, "print JSON")
	if err := flags.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			return o, err
		}
		return o, usageError{err}
	}
	var faults []error
	fault := func(format string, values ...any) { faults = append(faults, fmt.Errorf(format, values...)) }
	if flags.NArg() > 0 {
		fault("unexpected argument %q", flags.Arg(0))
	}
	if o.rate < 1 || o.rate > rateMax {
		fault("--rate %d: want 1 to %d", o.rate, rateMax)
	} else if n := float64(o.rate) * o.length.Seconds(); n < 10 || n > messagesMax {
		fault("--time %v: want 10 to %d messages, not %.0f", o.length, messagesMax, n)
	}
	for word := range strings.SplitSeq(*procs, ",") {
		n, err := strconv.Atoi(word)
		if err != nil || n < 1 || n > procMax {
			fault("--procs %q: want whole numbers from 1 to %d", *procs, procMax)
			break
		}
		o.procs = append(o.procs, n)
	}
	switch *pin {
	case "yes":
		o.pins = []bool{true}
	case "no":
		o.pins = []bool{false}
	case "both":
		o.pins = []bool{false, true}
	default:
		fault("--pin %q: want yes, no or both", *pin)
	}
	for word := range strings.SplitSeq(*names, ",") {
		i := slices.IndexFunc(paths, func(p path) bool { return p.name == word })
		if i < 0 {
			fault("--paths %q: want some of %s", *names, strings.Join(pathNames(), ","))
			break
		}
		o.paths = append(o.paths, paths[i])
	}
	if len(faults) > 0 {
		return o, usageError{errors.Join(faults...)}
	}
	return o, nil
}

func run(ctx context.Context, args []string, out, errOut io.Writer) error {
	o, err := parse(args, errOut)
	if err != nil {
		return err
	}
	allowed, err := cpus()
	if err != nil && slices.Contains(o.pins, true) {
		if len(o.pins) == 1 {
			return usageError{fmt.Errorf("--pin yes: %w", err)}
		}
		fmt.Fprintln(errOut, "latency: goroutines are not pinned:", err)
		o.pins = []bool{false}
	}
	r := report{Go: runtime.Version(), CPUs: runtime.NumCPU(), Load: loadAverage(), Rate: o.rate, Seconds: o.length.Seconds()}
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(0))
	for _, procs := range o.procs {
		runtime.GOMAXPROCS(procs)
		for _, pinned := range o.pins {
			on := allowed
			if !pinned {
				on = nil
			}
			for _, p := range o.paths {
				c, err := measure(ctx, p, o, on)
				if err != nil {
					return fmt.Errorf("%s, GOMAXPROCS=%d, pinned %t: %w", p.name, procs, pinned, err)
				}
				c.Procs = procs
				r.Cases = append(r.Cases, c)
			}
		}
	}
	if o.asJSON {
		e := json.NewEncoder(out)
		e.SetIndent("", "  ")
		return e.Encode(r)
	}
	return r.print(out)
}
