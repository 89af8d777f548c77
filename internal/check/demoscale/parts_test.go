package demoscale

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"
)

func TestCache_ForgetsWhatWasNotUsedForLongest(t *testing.T) {
	c := cache{size: 2}
	c.put("a", "1")
	c.put("b", "2")
	if got, ok := c.get("a"); !ok || got != "1" {
		t.Errorf("a: %q, %v", got, ok)
	}
	c.put("c", "3")
	for word, want := range map[string]bool{"a": true, "b": false, "c": true} {
		if _, ok := c.get(word); ok != want {
			t.Errorf("%s is cached: %v; want %v", word, ok, want)
		}
	}
}

func TestCache_OfNoSizeKeepsNothing(t *testing.T) {
	var c cache
	c.put("a", "1")
	if _, ok := c.get("a"); ok {
		t.Error("a is cached")
	}
}

// ask asks a worker directly.
func ask(t *testing.T, w *worker, query string) (resp *http.Response, body string) {
	t.Helper()
	resp, err := http.Get(w.url + "/echo" + query)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp, string(text)
}

func start(t *testing.T, s settings) *worker {
	t.Helper()
	w, err := startWorker(s, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		http.DefaultClient.CloseIdleConnections()
		if err := w.stop(); err != nil {
			t.Error(err)
		}
	})
	return w
}

func TestWorker_AnswersAgainFromItsCache(t *testing.T) {
	w := start(t, settings{cache: 2, rounds: 3, slow: 1})
	for _, want := range []string{"miss", "hit", "hit"} {
		resp, body := ask(t, w, "?word=joke")
		if how := resp.Header.Get(fieldCache); how != want || body != answerTo("joke", 3) || resp.Header.Get(fieldWorker) != "0" {
			t.Errorf("%s from %q: %q; want a %s", how, resp.Header.Get(fieldWorker), body, want)
		}
	}
}

func TestWorker_RefusesWhatIsNoWord(t *testing.T) {
	w := start(t, settings{cache: 2, slow: 1})
	for _, query := range []string{"", "?word=", "?word=" + strings.Repeat("x", wordBytesMax+1)} {
		if resp, _ := ask(t, w, query); resp.StatusCode != http.StatusBadRequest {
			t.Errorf("%q: %s; want 400", query, resp.Status)
		}
	}
}

func TestWorker_DoesOneThingAtATime(t *testing.T) {
	const requests = 8
	const sleep = 20 * time.Millisecond
	w := start(t, settings{sleep: sleep, slow: 1}) // no cache: every request is a miss
	began := time.Now()
	var clients sync.WaitGroup
	for range requests {
		clients.Go(func() { _, _ = ask(t, w, "?word=joke") })
	}
	clients.Wait()
	if took := time.Since(began); took < requests*sleep/2 {
		t.Errorf("%d requests took %v; one after the other they take at least %v", requests, took, requests*sleep/2)
	}
}

func TestClient_NoticesAWrongAnswer(t *testing.T) {
	s := settings{words: 1, clients: 2, slow: 1, duration: time.Minute}
	w := start(t, s)
	l := load{settings: s, urls: []string{w.url}, answers: []string{"something else"}, workers: 1}
	if _, err := l.run(t.Context()); err == nil || !strings.Contains(err.Error(), "word-1 is answered with 200") {
		t.Errorf("%v: want an error that names the word", err)
	}
}

func TestTally_CountsWhatWasCutOffWithItsAge(t *testing.T) {
	tally := newTally(1, 1)
	tally.answered(0, 0, true, time.Millisecond)
	tally.unanswered(3 * time.Second)
	tally.unanswered(3 * time.Second)
	r := tally.result(trial{Workers: 1}, time.Second)
	if r.P50 < 2.9 || r.P50 > 3.1 || r.Answers != 1 || r.Unfinished != 2 || r.HitRate != 1 {
		t.Errorf("%+v", r)
	}
}

func TestSettings_NamesEveryFault(t *testing.T) {
	_, err := parseSettings(strings.Fields("--workers 0 --hot 101 --sleep -1s --only random,best"), io.Discard)
	if err == nil {
		t.Fatal("accepted")
	}
	for _, want := range []string{"--workers 0", "--hot 101", "--sleep -1s", `"best"`} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%v: does not name %s", err, want)
		}
	}
}

func TestRun_ExitCodes(t *testing.T) {
	for args, want := range map[string]int{"--help": 0, "--workers x": exitUsage, "more": exitUsage, "--only random --svg /": exitUsage} {
		var out, progress bytes.Buffer
		all := append(strings.Fields("--duration 100ms --warmup 0s --rounds 1 --sleep 1ms"), strings.Fields(args)...)
		if code := Run(context.Background(), all, &out, &progress); code != want || progress.Len() == 0 {
			t.Errorf("%s: exit code %d, %q; want %d", args, code, &progress, want)
		}
	}
}

func TestScale_CoversEveryRate(t *testing.T) {
	for _, c := range []struct {
		rates []float64
		want  scale
	}{
		{[]float64{0.7, 13}, scale{-1, 2}},
		{[]float64{5, 900}, scale{0, 3}},
		{[]float64{0, 0}, scale{0, 1}},
		{[]float64{1}, scale{0, 1}},
	} {
		var results []result
		for _, rate := range c.rates {
			results = append(results, result{Rate: rate})
		}
		if got := scaleOf(results); got != c.want {
			t.Errorf("%v: %v; want %v", c.rates, got, c.want)
		}
	}
}
