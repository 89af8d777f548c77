package demoscale

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"
)

// modelsCommand is the first argument of this comparison.
const modelsCommand = "models"

// modelSettings is the command line of "joke models".
type modelSettings struct {
	settings
	refresh time.Duration // of the list that a client has from the name service
	lease   time.Duration // of a worker with the name service
	probe   time.Duration // pause between two attempts to connect to a worker that is down
	models  []string
}

// length is the duration of one trial.
func (s *modelSettings) length() time.Duration { return s.warmup + phases*s.duration }

func parseModelSettings(args []string, usage io.Writer) (modelSettings, error) {
	s := modelSettings{settings: settings{bound: 100, slow: 1}}
	f := flag.NewFlagSet("joke models", flag.ContinueOnError)
	f.SetOutput(io.Discard) // the caller prints the error
	f.IntVar(&s.workers, "workers", 10, "workers, of which the first one dies and comes back")
	f.IntVar(&s.words, "words", 40, "words that clients ask for")
	f.IntVar(&s.cache, "cache", 10, "answers that a worker keeps")
	f.IntVar(&s.clients, "clients", 24, "clients, each with one request at a time")
	f.DurationVar(&s.duration, "duration", 5*time.Second, "how long to measure each phase of each model")
	f.DurationVar(&s.warmup, "warmup", 3*time.Second, "warm-up before the first phase")
	f.Uint64Var(&s.seed, "seed", 1, "seed of the words and the sleeps")
	f.IntVar(&s.rounds, "rounds", 1000, "rounds of SHA-256 for each miss")
	f.DurationVar(&s.sleep, "sleep", 200*time.Millisecond, "average sleep for each miss; it varies from 50 to 150 percent of it")
	f.DurationVar(&s.refresh, "refresh", time.Second, "how old a client's list from the name service may be")
	f.DurationVar(&s.lease, "lease", time.Second, "how long the name service lists a worker that is silent")
	f.DurationVar(&s.probe, "probe", 500*time.Millisecond, "pause between two attempts to connect to a worker, of the proxy and of clients that hash")
	only := f.String("only", "", "run only these, comma-separated: "+strings.Join(modelNamesAll(), ","))
	f.BoolVar(&s.json, "json", false, "print JSON")
	f.StringVar(&s.picture, "svg", "", "write a picture to this `file`")
	if err := f.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			fmt.Fprintln(usage, "Compares a TCP proxy, a name service, and a hash in the client, while one of ten slow workers dies and comes back.")
			f.SetOutput(usage)
			f.PrintDefaults()
		}
		return s, err
	}
	if f.NArg() > 0 {
		return s, fmt.Errorf("unexpected argument %q: want only flags after %s", f.Arg(0), modelsCommand)
	}
	s.models = modelNamesAll()
	if *only != "" {
		s.models = strings.Split(*only, ",")
	}
	return s, s.validateModels()
}

// validateModels lists everything that is wrong.
func (s *modelSettings) validateModels() error {
	faults := []error{
		s.validate(), within("workers", s.workers, 2, workersMax),
		within("refresh", s.refresh, time.Millisecond, durationMax),
		within("lease", s.lease, time.Millisecond, durationMax),
		within("probe", s.probe, time.Millisecond, durationMax),
	}
	for _, name := range s.models {
		if !slices.Contains(modelNamesAll(), name) {
			faults = append(faults, fmt.Errorf("--only %q: want names from %s", name, strings.Join(modelNamesAll(), ",")))
		}
	}
	return errors.Join(faults...)
}

// runModels executes a command line after "models" and returns the exit code.
func runModels(ctx context.Context, args []string, out, progress io.Writer) int {
	s, err := parseModelSettings(args, progress)
	if errors.Is(err, flag.ErrHelp) {
		return 0
	}
	if err != nil {
		fmt.Fprintf(progress, "joke: %v\nRun with %s --help for the flags.\n", err, modelsCommand)
		return exitUsage
	}
	svg, err := createPicture(s.picture)
	if err != nil {
		fmt.Fprintf(progress, "joke: %v\n", err)
		return exitUsage
	}
	err = errors.Join(compareModels(ctx, s, svg, out, progress), closePicture(svg))
	if err != nil {
		fmt.Fprintf(progress, "joke: %v\n", err)
		return exitFailure
	}
	return 0
}

// compareModels runs all trials and prints the results, as a picture too unless svg is nil.
func compareModels(ctx context.Context, s modelSettings, svg *os.File, out, progress io.Writer) error {
	results, err := tryModels(ctx, s, progress)
	if err != nil {
		return err
	}
	if svg != nil {
		if err := writePicture(svg, modelPicture(s, results)); err != nil {
			return err
		}
	}
	return printResults(out, s.json, results, modelTable(results))
}
