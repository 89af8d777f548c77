//go:build linux

package chaos

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// FailoverReport is everything that "make failover" has measured. Its JSON is for programs.
type FailoverReport struct {
	// Commit is that of the source, if it is known.
	Commit  string    `json:"commit,omitempty"`
	Began   time.Time `json:"began"`
	Machine Machine   `json:"machine"`
	// Interrupted says that not everything was measured.
	Interrupted bool             `json:"interrupted,omitempty"`
	Scenarios   []*FailoverTimes `json:"scenarios"`
	Clients     []*ClientCalls   `json:"clients"`
	Stability   *Stability       `json:"stability,omitempty"`
}

// FailoverTimes is what was measured in one scenario. Times are in milliseconds.
type FailoverTimes struct {
	Name  string `json:"name"`
	Title string `json:"title"`
	// Load is the load average when it began.
	Load   float64 `json:"load"`
	Events int     `json:"events"`
	P50    float64 `json:"p50_ms"`
	P90    float64 `json:"p90_ms"`
	P99    float64 `json:"p99_ms"`
	Worst  float64 `json:"worst_ms"`
	// AddedP50 and AddedP99 are how much of it the measurement may have added.
	AddedP50 float64 `json:"added_p50_ms"`
	AddedP99 float64 `json:"added_p99_ms"`
	// MedianMax and P99Max are the targets, 0 for none. Reached is empty if there is none.
	MedianMax float64 `json:"target_p50_ms,omitempty"`
	P99Max    float64 `json:"target_p99_ms,omitempty"`
	Reached   string  `json:"reached,omitempty"`
	// Broken says that the measurement ended early: there was no answer for too long, or a wrong one.
	Broken bool `json:"broken,omitempty"`
	// Times are those of all events. Successors are the same to the first answer of the successor, where
	// Times are the longest ones without an answer.
	Times      []float64 `json:"times_ms"`
	Successors []float64 `json:"successors_ms,omitempty"`
	// Steps are medians, from the event.
	Steps []StepTime `json:"steps,omitempty"`
}

// StepTime is the median of when a step of a failover is done.
type StepTime struct {
	Step   string  `json:"step"`
	Events int     `json:"events"`
	P50    float64 `json:"p50_ms"`
	P90    float64 `json:"p90_ms"`
	// Slowest is when it was done in the slowest event, 0 if the log does not say so.
	Slowest float64 `json:"slowest_ms"`
}

// ClientCalls is what the Go client's callers saw while leaders ended.
type ClientCalls struct {
	Name     string  `json:"name"`
	Title    string  `json:"title"`
	Load     float64 `json:"load"`
	Deadline float64 `json:"deadline_ms"`
	Events   int     `json:"events"`
	Calls    int64   `json:"calls"`
	Failed   int64   `json:"failed"`
	Slowest  float64 `json:"slowest_ms"`
	Failures string  `json:"failures,omitempty"`
}

// Stability is what was seen while nothing ended.
type Stability struct {
	Load     float64 `json:"load"`
	Minutes  float64 `json:"minutes"`
	Busy     int     `json:"busy_loops"`
	Changes  int     `json:"leader_changes"`
	Suspects int     `json:"leader_suspected"`
	Stalls   int     `json:"stalls"`
	Answered int     `json:"answered"`
	Gap      float64 `json:"longest_gap_ms"`
}

// NewFailoverTimes computes the figures of a scenario from its outcomes.
func NewFailoverTimes(s Scenario, load float64, outcomes []Outcome) *FailoverTimes {
	r := &FailoverTimes{
		Name: s.Name, Title: s.Title, Load: load, Events: len(outcomes),
		MedianMax: milliseconds(s.MedianMax), P99Max: milliseconds(s.P99Max),
	}
	var times, added []time.Duration
	for _, o := range outcomes {
		took := o.Took
		if s.CountsGap() {
			took = o.Gap
			r.Successors = append(r.Successors, milliseconds(o.Took))
		}
		times, added = append(times, took), append(added, o.Added)
		r.Times = append(r.Times, milliseconds(took))
	}
	at := func(times []time.Duration, part float64) float64 { return milliseconds(Quantile(times, part)) }
	r.P50, r.P90, r.P99, r.Worst = at(times, 0.5), at(times, 0.9), at(times, 0.99), at(times, 1)
	r.AddedP50, r.AddedP99 = at(added, 0.5), at(added, 0.99)
	if len(outcomes) > 0 && (s.MedianMax > 0 || s.P99Max > 0) {
		r.Reached = "yes"
		if s.MedianMax > 0 && r.P50 > r.MedianMax || s.P99Max > 0 && r.P99 > r.P99Max {
			r.Reached = "no"
		}
	}
	return r
}

// target describes the targets of a scenario.
func (r *FailoverTimes) target() string {
	var parts []string
	if r.MedianMax > 0 {
		parts = append(parts, fmt.Sprintf("p50 ≤ %g", r.MedianMax))
	}
	if r.P99Max > 0 {
		parts = append(parts, fmt.Sprintf("p99 ≤ %g", r.P99Max))
	}
	return strings.Join(parts, ", ")
}

// verdict says whether the targets were reached.
func (r *FailoverTimes) verdict() string {
	if r.Broken {
		return "no: ended early, see the output"
	}
	return r.Reached
}

// Markdown returns the report for people.
func (r *FailoverReport) Markdown() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s, %d cores (%s), Linux %s, %s; one fdatasync takes %.2f ms; load average %.1f before the start.", r.Began.UTC().Format(time.DateOnly),
		r.Machine.CPUs, r.Machine.Model, r.Machine.Kernel, r.Machine.Go, r.Machine.SyncMS, r.Machine.Load)
	if r.Commit != "" {
		fmt.Fprintf(&b, " Commit %s.", r.Commit)
	}
	if r.Interrupted {
		b.WriteString(" Interrupted: not everything was measured.")
	}
	b.WriteString("\n")
	r.writeScenarios(&b)
	r.writeSteps(&b)
	r.writeClients(&b)
	if s := r.Stability; s != nil {
		fmt.Fprintf(&b, "\n| without an event | load | minutes | answers | leader changes | leaders suspected | stalls | longest time without an answer, ms | reached |\n|---|---|---|---|---|---|---|---|---|\n")
		fmt.Fprintf(&b, "| %d busy loops | %.0f | %.1f | %d | %d | %d | %d | %.0f | %s |\n", s.Busy, s.Load, s.Minutes, s.Answered, s.Changes, s.Suspects, s.Stalls, s.Gap, yesNo(s.Changes == 0))
	}
	return b.String()
}

func (r *FailoverReport) writeScenarios(b *strings.Builder) {
	if len(r.Scenarios) == 0 {
		return
	}
	b.WriteString("\n| leader | load | events | p50, ms | p90 | p99 | worst | added by measuring, p50 | target, ms | reached |\n|---|---|---|---|---|---|---|---|---|---|\n")
	for _, s := range r.Scenarios {
		fmt.Fprintf(b, "| %s | %.0f | %d | %.1f | %.1f | %.1f | %.1f | %.2f | %s | %s |\n",
			s.Title, s.Load, s.Events, s.P50, s.P90, s.P99, s.Worst, s.AddedP50, s.target(), s.verdict())
	}
}

func (r *FailoverReport) writeSteps(b *strings.Builder) {
	for _, s := range r.Scenarios {
		if len(s.Steps) == 0 {
			continue
		}
		fmt.Fprintf(b, "\n| step (%s) | seen in | p50 from the event, ms | p90 | the slowest event |\n|---|---|---|---|---|\n", s.Title)
		for _, step := range s.Steps {
			fmt.Fprintf(b, "| %s | %d of %d | %.2f | %.2f | %.2f |\n", step.Step, step.Events, s.Events, step.P50, step.P90, step.Slowest)
		}
	}
}

func (r *FailoverReport) writeClients(b *strings.Builder) {
	if len(r.Clients) == 0 {
		return
	}
	b.WriteString("\n| Go client | load | events | calls | failed | slowest, ms | reached |\n|---|---|---|---|---|---|---|\n")
	for _, c := range r.Clients {
		fmt.Fprintf(b, "| %s | %.0f | %d | %d | %d | %.1f | %s |\n", c.Title, c.Load, c.Events, c.Calls, c.Failed, c.Slowest, yesNo(c.Failed == 0))
	}
}

// Missed returns the names of what has not reached its target.
func (r *FailoverReport) Missed() (names []string) {
	for _, s := range r.Scenarios {
		if s.Reached == "no" || s.Broken {
			names = append(names, s.Name)
		}
	}
	for _, c := range r.Clients {
		if c.Failed > 0 {
			names = append(names, c.Name)
		}
	}
	if r.Stability != nil && r.Stability.Changes > 0 {
		names = append(names, "stability")
	}
	return names
}

// Write writes failover.md, failover.json and failover.svg to dir, which it makes if needed.
func (r *FailoverReport) Write(dir string) error {
	machine, err := json.MarshalIndent(r, "", " ")
	if err == nil {
		err = os.MkdirAll(dir, 0o755)
	}
	for name, content := range map[string]string{"failover.md": r.Markdown(), "failover.json": string(machine) + "\n", "failover.svg": r.Picture()} {
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, name), []byte(content), 0o644)
		}
	}
	return err
}

func yesNo(yes bool) string {
	if yes {
		return "yes"
	}
	return "no"
}
