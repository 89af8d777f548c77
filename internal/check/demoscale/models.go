package demoscale

import (
	"context"
	"errors"
	"fmt"
	"io"
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
	s := modelSettings{settings: settings{
		workers: 10, words: 40, cache: 10, clients: 24, duration: 5 * time.Second, warmup: 3 * time.Second, rounds: 1000, sleep: 200 * time.Millisecond, bound: 100, slow: 1,
	}}
	f, only := s.flags("joke "+modelsCommand, "workers, of which the first one dies and comes back", "how long to measure each phase of each model",
		"warm-up before the first phase", modelNamesAll())
	f.DurationVar(&s.refresh, "refresh", time.Second, "how old a client's list from the name service may be")
	f.DurationVar(&s.lease, "lease", time.Second, "how long the name service lists a worker that is silent")
	f.DurationVar(&s.probe, "probe", 500*time.Millisecond, "pause between two attempts to connect to a worker, of the proxy and of clients that hash")
	err := parse(f, args, usage, "Compares a TCP proxy, a name service, and a hash in the client, while one of ten slow workers dies and comes back.")
	if err != nil {
		return s, err
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

// compare runs all trials.
func (s *modelSettings) compare(ctx context.Context, progress io.Writer) (shown, error) {
	results, err := tryAll(ctx, &s.settings, s.length(), s.models, progress, func(name string, answers []string) (modelResult, error) {
		return tryModel(ctx, name, *s, answers)
	})
	if err != nil {
		return shown{}, err
	}
	return shown{results, modelTable(results), modelPicture(*s, results)}, nil
}
