package main

import (
	"cmp"
	"errors"
	"flag"
	"fmt"
	"io"
	"time"
)

// regions is their number: one for each node.
const regions = 3

// regionNames are the names of the regions. Node 1 is in the first.
var regionNames = [regions]string{"A", "B", "C"}

// Limits of the settings, so that a typing error does not overload the machine.
const (
	workersMax  = 32
	delayMax    = 200 * time.Millisecond // the nodes' handshakes take 2 s at most
	durationMin = 100 * time.Millisecond
	durationMax = 10 * time.Minute
	warmupMax   = time.Minute
	tickMin     = 10 * time.Millisecond
	tickMax     = 2 * time.Second
	intervalMin = 20 * time.Millisecond
	intervalMax = 10 * time.Second
	// ticksPerInterval is how many ticks the length of a limit has at least. The nodes demand it.
	ticksPerInterval = 5
)

// settings is the command line.
type settings struct {
	delays [regions][regions]time.Duration // one way, symmetric

	workers          int // of each kind in each region
	duration, warmup time.Duration
	tick, interval   time.Duration // RTT_MS and INTERVAL_MS

	binary, picture string
}

func parseSettings(args []string, usage io.Writer) (settings, error) {
	var s settings
	var ab, ac, bc time.Duration
	f := flag.NewFlagSet("intervals", flag.ContinueOnError)
	f.SetOutput(io.Discard) // the caller prints the error
	f.DurationVar(&ab, "ab", 20*time.Millisecond, "delay between regions A and B, one way")
	f.DurationVar(&ac, "ac", 40*time.Millisecond, "delay between regions A and C, one way")
	f.DurationVar(&bc, "bc", 30*time.Millisecond, "delay between regions B and C, one way")
	f.IntVar(&s.workers, "workers", 8, "workers of each kind in each region, each with one transaction at a time")
	f.DurationVar(&s.duration, "duration", 20*time.Second, "how long to measure")
	f.DurationVar(&s.warmup, "warmup", time.Second, "how long to run before that")
	f.DurationVar(&s.tick, "tick", 0, "RTT_MS of the nodes; 0: the longest round trip between two regions")
	f.DurationVar(&s.interval, "interval", 400*time.Millisecond, "INTERVAL_MS of the nodes, at least 5 ticks")
	f.StringVar(&s.binary, "isotone", "", "isotone command; empty: build it from this module")
	f.StringVar(&s.picture, "svg", "", "write a picture to this `file`")
	if err := f.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			fmt.Fprintln(usage, "Compares timestamps of the oracle with those of the cluster clock, between distant regions.")
			f.SetOutput(usage)
			f.PrintDefaults()
		}
		return s, err
	}
	if f.NArg() > 0 {
		return s, fmt.Errorf("unexpected argument %q: want only flags", f.Arg(0))
	}
	s.delays = [regions][regions]time.Duration{{0, ab, ac}, {ab, 0, bc}, {ac, bc, 0}}
	if s.tick == 0 {
		s.tick = max((2 * max(ab, ac, bc)).Round(time.Millisecond), tickMin)
	}
	return s, s.validate(ab, ac, bc)
}

// validate lists everything that is wrong.
func (s *settings) validate(ab, ac, bc time.Duration) error {
	return errors.Join(
		within("ab", ab, 0, delayMax), within("ac", ac, 0, delayMax), within("bc", bc, 0, delayMax),
		within("workers", s.workers, 1, workersMax),
		within("duration", s.duration, durationMin, durationMax),
		within("warmup", s.warmup, 0, warmupMax),
		within("tick", s.tick, tickMin, tickMax),
		within("interval", s.interval, max(intervalMin, ticksPerInterval*s.tick), intervalMax),
	)
}

func within[T cmp.Ordered](flag string, value, least, most T) error {
	if value < least || value > most {
		return fmt.Errorf("--%s %v: want %v to %v", flag, value, least, most)
	}
	return nil
}

// nearest returns the other region that is nearest to a region.
func (s *settings) nearest(region int) int {
	best := (region + 1) % regions
	for other := range regions {
		if other != region && s.delays[region][other] < s.delays[region][best] {
			best = other
		}
	}
	return best
}
