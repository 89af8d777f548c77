package demoscale

import (
	"bytes"
	"context"
	"encoding/json"
	"encoding/xml"
	"errors"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// quick makes a run short: a miss is cheap, but still costs far more than a hit.
var quick = []string{"--rounds", "100", "--sleep", "40ms", "--warmup", "500ms", "--duration", "1s"}

// tellJSON runs the program and returns its results by name.
func tellJSON(t *testing.T, args ...string) map[string]result {
	t.Helper()
	var out, progress bytes.Buffer
	if code := Run(t.Context(), append(append(slices.Clone(quick), "--json"), args...), &out, &progress); code != 0 {
		t.Fatalf("exit code %d: %s", code, &progress)
	}
	var list []result
	if err := json.Unmarshal(out.Bytes(), &list); err != nil {
		t.Fatal(err)
	}
	results := map[string]result{}
	for _, r := range list {
		results[r.Name] = r
		of := 0
		for _, n := range r.PerWorker {
			of += n
		}
		if r.Answers == 0 || of != r.Answers || len(r.PerWorker) != r.Workers {
			t.Errorf("%s: %d answers, by worker %v", r.Name, r.Answers, r.PerWorker)
		}
	}
	return results
}

// The clients check every answer, and the first wrong one would end the run. The load bound
// of the sticky strategy spreads a word over some workers, whose caches have room for it.
func TestJoke_LocalityBeatsBalance(t *testing.T) {
	picture := filepath.Join(t.TempDir(), "joke.svg")
	results := tellJSON(t, "--words", "6", "--cache", "3", "--svg", picture)
	if len(results) != len(trialNames()) {
		t.Errorf("%d results: want one for each of %v", len(results), trialNames())
	}
	sticky := results["sticky"]
	if sticky.HitRate <= 0.9 {
		t.Errorf("sticky hits %.3f: want more than 0.9", sticky.HitRate)
	}
	for name, r := range results {
		if name != "sticky" && r.Rate*2 > sticky.Rate {
			t.Errorf("%s: %.0f/s; want far less than sticky's %.0f/s", name, r.Rate, sticky.Rate)
		}
	}
	checkPicture(t, picture, results)
}

// TestRun_KeepsAnOldPictureUntilThereIsAnother, and fails at once if it cannot write one.
func TestRun_KeepsAnOldPictureUntilThereIsAnother(t *testing.T) {
	dir := t.TempDir()
	old, fresh := filepath.Join(dir, "old.svg"), filepath.Join(dir, "fresh.svg")
	if err := os.WriteFile(old, []byte(strings.Repeat("old ", 1<<16)), 0o600); err != nil {
		t.Fatal(err)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	for _, name := range []string{old, fresh} {
		if code := Run(ended, []string{"--svg", name}, io.Discard, io.Discard); code != exitFailure {
			t.Errorf("interrupted: exit code %d", code)
		}
	}
	if b, err := os.ReadFile(old); err != nil || len(b) != 4<<16 {
		t.Errorf("the old picture: %d bytes, %v", len(b), err)
	}
	if _, err := os.Stat(fresh); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a file is left: %v", err)
	}
	began := time.Now()
	if code := Run(t.Context(), []string{"--svg", filepath.Join(dir, "missing", "a.svg")}, io.Discard, io.Discard); code != exitUsage || time.Since(began) > 10*time.Second {
		t.Errorf("exit code %d after %v", code, time.Since(began))
	}
	args := strings.Fields("--only random --duration 100ms --warmup 0s --rounds 1 --sleep 1ms --svg " + old)
	if code := Run(t.Context(), args, io.Discard, io.Discard); code != 0 {
		t.Errorf("exit code %d", code)
	}
	if b, err := os.ReadFile(old); err != nil || !strings.HasPrefix(string(b), "<svg") || strings.Contains(string(b), "old") {
		t.Errorf("the new picture: %.100s, %v", b, err)
	}
}

// With room for three of six words, half of the requests hit if words come at random. Hits are
// independent, so the limit is six standard deviations of that many coin tosses, which one run
// in 500 million exceeds. The requests cut off at the end, one for each worker, were misses.
// The sleep is short, so that a single worker gives many answers too.
func TestJoke_WithoutLocalityHitsAreChance(t *testing.T) {
	t.Parallel()
	without := slices.DeleteFunc(trialNames(), func(name string) bool { return name == "sticky" })
	results := tellJSON(t, "--words", "6", "--cache", "3", "--sleep", "2ms", "--only", strings.Join(without, ","))
	for name, r := range results {
		answers := float64(r.Answers)
		if off, most := math.Abs(r.HitRate-0.5), 3/math.Sqrt(answers)+float64(r.Workers)/answers; off > most {
			t.Errorf("%s hits %.3f of %d: want a half, within %.3f", name, r.HitRate, r.Answers, most)
		}
	}
}

// checkPicture checks that the picture is XML and contains every figure.
func checkPicture(t *testing.T, name string, results map[string]result) {
	t.Helper()
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	for d := xml.NewDecoder(bytes.NewReader(text)); ; {
		if _, err := d.Token(); err == io.EOF {
			break
		} else if err != nil {
			t.Fatalf("the picture: %v", err)
		}
	}
	for _, r := range results {
		for _, want := range []string{">" + r.Name + "<", ">" + figure(r.Rate) + "<"} {
			if !strings.Contains(string(text), want) {
				t.Errorf("the picture lacks %s", want)
			}
		}
	}
}

func TestJoke_SpreadsEvenlyByRoundRobinAndNotByKey(t *testing.T) {
	t.Parallel()
	results := tellJSON(t, "--words", "1", "--cache", "1", "--clients", "4", "--only", "round-robin,sticky")
	even := results["round-robin"].PerWorker
	if most, least := slices.Max(even), slices.Min(even); most-least > 8 {
		t.Errorf("round-robin: from %d to %d answers; want a difference of at most what the clients cause at the beginning and the end", least, most)
	}
	// A word has one first choice, and goes there unless that worker is full.
	if own := results["sticky"]; slices.Max(own.PerWorker) < own.Answers/3 {
		t.Errorf("sticky: %v; want a third at one worker", own.PerWorker)
	}
}

func TestJoke_PrintsTableAndPlot(t *testing.T) {
	var out, progress bytes.Buffer
	args := append(slices.Clone(quick), "--duration", "100ms", "--warmup", "0s", "--only", "random,least-busy", "--sleep", "1ms", "--hot", "50", "--slow", "2")
	if code := Run(t.Context(), args, &out, &progress); code != 0 {
		t.Fatalf("exit code %d: %s", code, &progress)
	}
	for _, want := range []string{"| random     |", "    random │", "least-busy │", "req/s, logarithmic"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("%q is missing in:\n%s", want, &out)
		}
	}
	if want := "1 of 2: random"; !strings.Contains(progress.String(), want) {
		t.Errorf("%q is missing in:\n%s", want, &progress)
	}
}

func TestJoke_EndsEarly(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	defer cancel(nil)
	// The first line of progress means that the workers are about to start.
	progress := writerFunc(func(b []byte) (int, error) {
		time.AfterFunc(50*time.Millisecond, func() { cancel(errors.New("enough")) })
		return len(b), nil
	})
	s, err := parseSettings([]string{"--duration", "10m", "--sleep", "1m", "--rounds", "10"}, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	if err := compare(ctx, &s, nil, io.Discard, progress); err == nil || !strings.Contains(err.Error(), "enough") {
		t.Errorf("%v: want the cause of the cancellation", err)
	}
	if took := time.Since(began); took > time.Minute {
		t.Errorf("ended after %v", took)
	}
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(b []byte) (int, error) { return f(b) }
