package demoscale

import (
	"cmp"
	"errors"
	"flag"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/isotone/isotone/internal/front/stats"
	"github.com/isotone/isotone/internal/proxy/balance"
)

// Limits of the settings, so that a typing error does not overload the machine.
const (
	workersMax  = 64
	wordsMax    = 256
	cacheMax    = 256
	clientsMax  = 1000
	roundsMax   = 1_000_000
	slowMax     = 100
	sleepMax    = time.Minute
	durationMin = 100 * time.Millisecond
	durationMax = 10 * time.Minute
)

// settings is the command line.
type settings struct {
	workers, words, cache, clients int

	duration, warmup time.Duration // of one strategy
	seed             uint64

	rounds int           // SHA-256 rounds of a miss
	sleep  time.Duration // of a miss, on average
	bound  int           // load bound of the sticky strategy, in percent
	hot    int           // percent of requests that always ask for the first word
	slow   int           // how many times as long the first worker sleeps

	record *stats.Recorder // of the requests to workers over HTTP; nil: none

	trials  []trial
	picture string
	json    bool
}

// trial is one row of the result.
type trial struct {
	Name     string           `json:"name"`
	Strategy balance.Strategy `json:"strategy"`
	Workers  int              `json:"workers"`
}

func (t trial) String() string { return t.Name }

// alone is the name of the trial with one worker.
const alone = "alone"

// trialNames returns the names of all trials, in the order in which they run.
func trialNames() []string {
	names := []string{alone}
	for _, s := range []balance.Strategy{balance.Random, balance.RoundRobin, balance.LeastBusy, balance.TwoChoices, balance.Sticky} {
		names = append(names, string(s))
	}
	return names
}

func (s *settings) common() *settings { return s }

// flags returns the flags that all comparisons have, with the values of s as defaults. only gets the names to run, of those in names.
func (s *settings) flags(name, workers, duration, warmup string, names []string) (f *flag.FlagSet, only *string) {
	f = flag.NewFlagSet(name, flag.ContinueOnError)
	f.SetOutput(io.Discard) // the caller prints the error
	f.IntVar(&s.workers, "workers", s.workers, workers)
	f.IntVar(&s.words, "words", s.words, "words that clients ask for")
	f.IntVar(&s.cache, "cache", s.cache, "answers that a worker keeps")
	f.IntVar(&s.clients, "clients", s.clients, "clients, each with one request at a time")
	f.DurationVar(&s.duration, "duration", s.duration, duration)
	f.DurationVar(&s.warmup, "warmup", s.warmup, warmup)
	f.Uint64Var(&s.seed, "seed", 1, "seed of the words and the sleeps")
	f.IntVar(&s.rounds, "rounds", s.rounds, "rounds of SHA-256 for each miss")
	f.DurationVar(&s.sleep, "sleep", s.sleep, "average sleep for each miss; it varies from 50 to 150 percent of it")
	f.BoolVar(&s.json, "json", false, "print JSON")
	f.StringVar(&s.picture, "svg", "", "write a picture to this `file`")
	return f, f.String("only", "", "run only these, comma-separated: "+strings.Join(names, ","))
}

// parse parses flags. Asked for help, it prints that.
func parse(f *flag.FlagSet, args []string, usage io.Writer, about string) error {
	err := f.Parse(args)
	if errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(usage, about)
		f.SetOutput(usage)
		f.PrintDefaults()
	}
	if err == nil && f.NArg() > 0 {
		err = fmt.Errorf("unexpected argument %q: want only flags after %s", f.Arg(0), f.Name())
	}
	return err
}

func parseSettings(args []string, usage io.Writer) (settings, error) {
	s := settings{workers: 10, words: 10, cache: 2, clients: 24, duration: 5 * time.Second, warmup: 4 * time.Second, rounds: 50_000, sleep: time.Second}
	f, only := s.flags("joke", "workers behind the proxy", "how long to measure each strategy", "warm-up before each measurement", trialNames())
	f.IntVar(&s.bound, "bound", 400, "load bound of the sticky strategy, in `percent` of a worker's share")
	f.IntVar(&s.hot, "hot", 0, "`percent` of requests that always ask for the first word")
	f.IntVar(&s.slow, "slow", 1, "factor by which the first worker sleeps longer")
	err := parse(f, args, usage, "Compares the strategies of the proxy in front of ten slow workers with small caches.\n\"joke models --help\" is about the three models of distribution.")
	if err != nil {
		return s, err
	}
	return s, errors.Join(s.validate(), s.choose(*only))
}

// validate lists everything that is wrong.
func (s *settings) validate() error {
	return errors.Join(
		within("workers", s.workers, 1, workersMax),
		within("words", s.words, 1, wordsMax),
		within("cache", s.cache, 0, cacheMax),
		within("clients", s.clients, 1, clientsMax),
		within("duration", s.duration, durationMin, durationMax),
		within("warmup", s.warmup, 0, durationMax),
		within("rounds", s.rounds, 0, roundsMax),
		within("sleep", s.sleep, 0, sleepMax),
		within("bound", s.bound, 100, balance.StickyPercentMax),
		within("hot", s.hot, 0, 100),
		within("slow", s.slow, 1, slowMax),
	)
}

func within[T cmp.Ordered](flag string, value, least, most T) error {
	if value < least || value > most {
		return fmt.Errorf("--%s %v: want %v to %v", flag, value, least, most)
	}
	return nil
}

// choose sets the trials: those in only, or all.
func (s *settings) choose(only string) error {
	names := trialNames()
	if only != "" {
		for name := range strings.SplitSeq(only, ",") {
			if !slices.Contains(names, name) {
				return fmt.Errorf("--only %q: want names from %s", name, strings.Join(names, ","))
			}
		}
		names = strings.Split(only, ",")
	}
	for _, name := range names {
		t := trial{Name: name, Strategy: balance.Strategy(name), Workers: s.workers}
		if name == alone {
			t.Strategy, t.Workers = balance.RoundRobin, 1
		}
		s.trials = append(s.trials, t)
	}
	return nil
}
