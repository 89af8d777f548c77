//go:build linux

package failover_test

import (
	"encoding/json"
	"encoding/xml"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/isotone/isotone/internal/check/chaos"
)

func TestQuantile_IsTheSmallestThatEnoughTimesDoNotExceed(t *testing.T) {
	var hundred []time.Duration
	for i := range 100 {
		hundred = append(hundred, time.Duration(100-i))
	}
	for _, c := range []struct {
		times []time.Duration
		part  float64
		want  time.Duration
	}{
		{hundred, 0.5, 50}, {hundred, 0.9, 90}, {hundred, 0.99, 99}, {hundred, 1, 100},
		{[]time.Duration{7, 5}, 0.5, 5}, {[]time.Duration{7}, 0.99, 7}, {nil, 0.5, 0},
	} {
		if got := chaos.Quantile(c.times, c.part); got != c.want {
			t.Errorf("%v of %d times: %d, want %d", c.part, len(c.times), got, c.want)
		}
	}
}

func TestScenarios_HaveNamesThatSelectThem(t *testing.T) {
	seen := map[string]bool{}
	for _, s := range chaos.Scenarios() {
		if seen[s.Name] || s.Title == "" || s.Nodes < 3 || s.SlowNodes > s.Nodes {
			t.Errorf("%+v", s)
		}
		seen[s.Name] = true
	}
	for _, c := range []struct {
		patterns, name string
		want           bool
	}{
		{"", "kill", true}, {"kill", "kill", true}, {"kill", "kill-busy", false}, {"stop, kill*", "kill-busy", true}, {"term", "kill", false},
	} {
		if got, err := chaos.Selected(c.patterns, c.name); got != c.want || err != nil {
			t.Errorf("%q selects %q: %v, %v", c.patterns, c.name, got, err)
		}
	}
	if _, err := chaos.Selected("[", "kill"); err == nil {
		t.Error("a bad pattern is accepted")
	}
}

// sampleReport has one scenario whose targets are reached and one whose are not.
func sampleReport(t *testing.T) *chaos.FailoverReport {
	t.Helper()
	outcome := func(took, gap time.Duration) chaos.Outcome {
		return chaos.Outcome{Took: took * time.Millisecond, Gap: gap * time.Millisecond, Added: time.Millisecond / 4}
	}
	kill, term := scenarioNamed(t, "kill"), scenarioNamed(t, "term")
	return &chaos.FailoverReport{
		Began: time.Unix(0, 0), Machine: chaos.Machine{CPUs: 2, Model: "<fast>"},
		Scenarios: []*chaos.FailoverTimes{
			chaos.NewFailoverTimes(kill, 0.5, []chaos.Outcome{outcome(20, 1), outcome(60, 1)}),
			chaos.NewFailoverTimes(term, 0.5, []chaos.Outcome{outcome(50, 6)}),
		},
		Clients:   []*chaos.ClientCalls{{Name: "client-kill", Title: "deadlines", Calls: 10, Failed: 1}},
		Stability: &chaos.Stability{Busy: 3, Minutes: 0.5, Suspects: 2},
	}
}

func TestFailoverReport_SaysWhatWasReached(t *testing.T) {
	r := sampleReport(t)
	for _, want := range []string{
		"| kill -9 | 0 | 2 | 20.0 | 60.0 | 60.0 | 60.0 | 0.25 | p50 ≤ 10, p99 ≤ 50 | no |",
		"| SIGTERM | 0 | 1 | 6.0 | 6.0 | 6.0 | 6.0 | 0.25 | p99 ≤ 10 | yes |", // the gap counts, not the time to the successor
		"| deadlines | 0 | 0 | 10 | 1 | 0.0 | no |",
		"| 3 busy loops | 0 | 0.5 | 0 | 0 | 2 | 0 | 0 | yes |",
	} {
		if !strings.Contains(r.Markdown(), want) {
			t.Errorf("%s\nis missing in\n%s", want, r.Markdown())
		}
	}
	if missed := strings.Join(r.Missed(), " "); missed != "kill client-kill" {
		t.Errorf("missed: %s", missed)
	}
	r.Scenarios[1].Broken = true
	if !strings.Contains(r.Markdown(), "| no: ended early") {
		t.Errorf("a broken measurement looks like a complete one: %s", r.Markdown())
	}
}

func TestFailoverReport_IsWrittenAsThreeFiles(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "new")
	if err := sampleReport(t).Write(dir); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(filepath.Join(dir, "failover.json"))
	if err != nil {
		t.Fatal(err)
	}
	var back chaos.FailoverReport
	if err := json.Unmarshal(b, &back); err != nil || len(back.Scenarios) != 2 || back.Scenarios[0].Times[1] != 60 {
		t.Errorf("%v: %s", err, b)
	}
	if b, err = os.ReadFile(filepath.Join(dir, "failover.md")); err != nil || !strings.Contains(string(b), "| kill -9 |") {
		t.Errorf("%v: %s", err, b)
	}
	if b, err = os.ReadFile(filepath.Join(dir, "failover.svg")); err != nil {
		t.Fatal(err)
	}
	circles := 0
	for d := xml.NewDecoder(strings.NewReader(string(b))); ; {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatalf("the picture is no XML: %v", err)
		}
		if e, ok := token.(xml.StartElement); ok && e.Name.Local == "circle" {
			circles++
		}
	}
	if circles != 3 {
		t.Errorf("%d dots for 3 events", circles)
	}
}

func TestStepTimes_ReadsTheLogOfTheSuccessor(t *testing.T) {
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	line := func(after time.Duration, msg string) string {
		return `{"time":"` + at.Add(after).Format(time.RFC3339Nano) + `","msg":"` + msg + `"}` + "\n"
	}
	var s chaos.StepTimes
	s.Add(line(-time.Second, "peer disconnected")+ // of an earlier event
		line(time.Millisecond, "peer disconnected")+
		"no json\n"+
		line(2*time.Millisecond, "raft: 1 became candidate at term 2")+
		line(3*time.Millisecond, "raft: 1 received MsgVoteResp from 1 at term 2")+
		line(4*time.Millisecond, "raft: 1 received MsgVoteResp from 3 at term 2")+
		line(time.Second, "raft: 1 became leader at term 3"), // of a later one
		at, at.Add(10*time.Millisecond))
	got := map[string]chaos.StepTime{}
	for _, step := range s.Medians() {
		got[step.Step] = step
	}
	for name, want := range map[string]float64{
		"the connection has ended":                  1,
		"has enough pre-votes, writes its own vote": 2,
		"its own vote is durable, votes count":      3,
		"is elected, writes the reservation":        0,
		"the first answer has arrived":              10,
	} {
		if got[name].P50 != want {
			t.Errorf("%s: %v, want %v ms", name, got[name], want)
		}
	}
}
