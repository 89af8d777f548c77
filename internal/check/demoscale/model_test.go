package demoscale

import (
	"bytes"
	"context"
	"encoding/json"
	"encoding/xml"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// TestModels_OnlyTheHashKeepsWordsAtHome, and in every model clients get over the death of a worker
// and use it again when it is back. The clients check every answer.
func TestModels_OnlyTheHashKeepsWordsAtHome(t *testing.T) {
	t.Parallel()
	picture := filepath.Join(t.TempDir(), "models.svg")
	var out, progress bytes.Buffer
	args := strings.Fields("models --json --rounds 10 --sleep 20ms --warmup 500ms --duration 1500ms --lease 1s --refresh 200ms --probe 20ms --svg " + picture)
	if code := Run(t.Context(), args, &out, &progress); code != 0 {
		t.Fatalf("exit code %d: %s", code, &progress)
	}
	var results []modelResult
	if err := json.Unmarshal(out.Bytes(), &results); err != nil {
		t.Fatal(err)
	}
	if len(results) != 3 {
		t.Fatalf("%d results", len(results))
	}
	for _, r := range results {
		if r.Healthy.Errors > 0 {
			t.Errorf("%s: %d errors while all workers are there", r.Name, r.Healthy.Errors)
		}
		// On a machine that has no time for this, the worker may not be found in time.
		if r.UsedAgain == nil && r.Back.Answers > 10*len(r.Back.Served[0]) || r.Back.Answers == 0 || r.Dead.Answers == 0 {
			t.Errorf("%s: the worker that was dead is not used again; %d answers while it was dead, %d after", r.Name, r.Dead.Answers, r.Back.Answers)
		}
		for word, row := range r.Dead.Served {
			if row[victim] > 2*24 { // those that were on their way when it died
				t.Errorf("%s: the dead worker answers word %d %d times", r.Name, word, row[victim])
			}
		}
		switch r.Name {
		case modelHash:
			if r.Moved == nil || *r.Moved == 0 || *r.Moved > 0.5 || r.Healthy.HitRate < 0.9 {
				t.Errorf("hash: moved %v, hits %.2f; want the words of one worker of ten, and hits", r.Moved, r.Healthy.HitRate)
			}
		default:
			if r.Moved != nil {
				t.Errorf("%s: words have a home", r.Name)
			}
		}
		if (r.Name == modelNames) != (r.Lookups > 0) {
			t.Errorf("%s: %d lookups", r.Name, r.Lookups)
		}
	}
	text, err := os.ReadFile(picture)
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
	if table := modelTable(results); strings.Count(table, "\n") != 5 || !strings.Contains(table, "| hash  |") {
		t.Errorf("the table:\n%s", table)
	}
}

func TestModels_NamesEveryFault(t *testing.T) {
	var out, progress bytes.Buffer
	code := Run(t.Context(), strings.Fields("models --workers 1 --lease 0s --only proxy,best"), &out, &progress)
	if code != exitUsage {
		t.Errorf("exit code %d", code)
	}
	for _, want := range []string{"--workers 1", "--lease 0s", `"best"`} {
		if !strings.Contains(progress.String(), want) {
			t.Errorf("%s does not name %s", &progress, want)
		}
	}
	for args, want := range map[string]int{"models --help": 0, "models more": exitUsage} {
		if code := Run(t.Context(), strings.Fields(args), &out, &progress); code != want {
			t.Errorf("%s: exit code %d", args, code)
		}
	}
}

func TestDirectory_ForgetsWhoIsSilent(t *testing.T) {
	d := directory{lease: time.Second, names: map[string]entry{}}
	d.here(0, "b", "2")
	d.here(0, "a", "1")
	d.here(900*time.Millisecond, "a", "3")
	for at, want := range map[time.Duration][]string{999 * time.Millisecond: {"a=3", "b=2"}} {
		if got := d.list(at); !slices.Equal(got, want) {
			t.Errorf("at %v: %v", at, got)
		}
	}
	if got := d.list(time.Second); !slices.Equal(got, []string{"a=3"}) {
		t.Errorf("at 1 s: %v", got)
	}
	if got := d.list(1900 * time.Millisecond); got != nil {
		t.Errorf("at 1.9 s: %v", got)
	}
}

func TestHomes_CountsWordsThatMove(t *testing.T) {
	before := homes([][]int{{10, 0}, {9, 1}, {0, 5}, {0, 3}})
	if !slices.Equal(before, []int{0, 0, 1, 1}) {
		t.Errorf("%v", before)
	}
	if got := moved(before, homes([][]int{{10, 0}, {0, 1}, {0, 5}, {0, 1}})); got == nil || *got != 0.25 {
		t.Errorf("%v", got)
	}
	if got := moved(homes([][]int{{5, 5}, {1, 0}}), []int{0, 0}); got != nil {
		t.Errorf("%v: half of the words have no home", *got)
	}
}

func TestWorker_AnswersLines(t *testing.T) {
	w := start(t, settings{cache: 2, rounds: 3, slow: 1})
	s, err := serveLines("127.0.0.1:0", w.answerLine)
	if err != nil {
		t.Fatal(err)
	}
	defer s.kill()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	c, err := dialLine(ctx, s.addr)
	if err != nil {
		t.Fatal(err)
	}
	defer c.close()
	for _, how := range []string{"miss", "hit"} {
		if got, err := c.ask(ctx, "joke"); err != nil || got != "0 "+how+" "+answerTo("joke", 3) {
			t.Errorf("%q, %v", got, err)
		}
	}
	for _, bad := range []string{"", "two words", strings.Repeat("x", wordBytesMax+1)} {
		if _, err := c.ask(ctx, bad); err == nil || !strings.Contains(err.Error(), "want a short word") {
			t.Errorf("%q: %v", bad, err)
		}
	}
	if _, err := c.ask(ctx, strings.Repeat("x", lineBytesMax+1)); err == nil {
		t.Error("a line without a bound is accepted")
	}
}

func TestModelClient_NoticesAWrongAnswer(t *testing.T) {
	s, err := serveLines("127.0.0.1:0", func(context.Context, string) (string, error) { return "OK 0 hit nonsense", nil })
	if err != nil {
		t.Fatal(err)
	}
	defer s.kill()
	settings := modelSettings{settings: settings{words: 1, workers: 1, duration: time.Minute}}
	line := &timeline{began: time.Now()}
	_, err = runModelLoad(t.Context(), settings, []string{"right"}, line, []chooser{viaProxy{s.addr}, viaProxy{s.addr}})
	if err == nil || !strings.Contains(err.Error(), "word-1 is answered with") {
		t.Errorf("%v: want an error that names the word", err)
	}
}

// TestByHash_ComesBackToAWorker that accepts connections again, and until then asks another one for
// its words.
func TestByHash_ComesBackToAWorker(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	list := []place{{"a", l.Addr().String()}, {"b", "127.0.0.1:1"}}
	h, err := newByHash(list, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	of := func(word string) string {
		addr, keep, err := h.choose(t.Context(), word)
		if err != nil || !keep {
			t.Fatal(keep, err)
		}
		return addr
	}
	word := wordAt(0)
	for i := 0; of(word) != list[0].addr; i++ {
		word = wordAt(i)
	}
	h.failed(list[0].addr)
	if of(word) != list[1].addr {
		t.Error("a worker that has failed is chosen")
	}
	h.next[0] = time.Time{} // it is time to try
	if of(word) != list[0].addr {
		t.Error("a worker that is back is not chosen")
	}
}
