package demolive

import (
	"fmt"
	"math"
	"strings"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/check/bench"
)

// Schema identifies the JSON format of a [Result].
const Schema = "isotone-demo-live/1"

// Result is what the readers saw. Times whose names end in S are seconds, those in MS milliseconds.
type Result struct {
	bench.Head
	Settings Settings `json:"settings"`
	Result   Outcome  `json:"result"`
	Verdict  Verdict  `json:"verdict"`
}

// Settings are the options of the run.
type Settings struct {
	bench.Load
	Source string `json:"source"`         // file or redis
	Bytes  int    `json:"document_bytes"` // of the first
}

// Outcome is what was measured.
type Outcome struct {
	bench.End
	Phases  []Phase  `json:"phases"`
	Seconds []Second `json:"seconds"`
}

// Verdict is the result of the checks.
type Verdict struct {
	bench.Judgement
	Checked uint64 `json:"checked"` // events
}

// Phase is a part of the run, in which all readers use TLS or none does.
type Phase struct {
	TLS     bool `json:"tls"`
	Readers int  `json:"readers"`
	Connect struct {
		Seconds float64 `json:"seconds"`
		CPUEach float64 `json:"cpu_us_per_reader"` // of the node
	} `json:"connect"`
	// Seconds is how long votes changed after that, Documents how often. All that follows is about this time.
	Seconds    float64 `json:"seconds"`
	Documents  int     `json:"documents"`
	Events     uint64  `json:"events"`
	EventsPerS float64 `json:"events_per_s"`
	Loads      uint64  `json:"loads"` // of the source
	// CPU is how much of one processor the node took, in percent, CPUEach its processor time for 1,000 events.
	CPU     float64 `json:"cpu_percent"`
	CPUEach float64 `json:"cpu_ms_per_1000_events"`
	// FirstMS and LastMS are the medians of the times from a write to its first and last reader, WorstMS the longest.
	FirstMS float64 `json:"first_ms"`
	LastMS  float64 `json:"last_ms"`
	WorstMS float64 `json:"worst_ms"`
	// NotLoaded is how many documents were replaced before the node loaded them, PassedOver how many events readers did
	// not get because there was a newer one, and Missed how many readers do not have the last document.
	NotLoaded  int `json:"not_loaded"`
	PassedOver int `json:"passed_over"`
	Missed     int `json:"missed"`
}

// Second is a second of the run. FirstMS and LastMS are about the latest document that all readers have; 0: none.
type Second struct {
	AtS     float64 `json:"at_s"`
	TLS     bool    `json:"tls"`
	Version int     `json:"version"`
	Events  uint64  `json:"events"`
	Loads   uint64  `json:"loads"`
	FirstMS float64 `json:"first_ms"`
	LastMS  float64 `json:"last_ms"`
	CPU     float64 `json:"cpu_percent"`
}

// measured completes a phase by what the node said at its beginning and its end.
func (p *Phase) measured(before, after reading) {
	p.Seconds = round(after.at.Sub(before.at).Seconds())
	p.EventsPerS = round(float64(p.Events) / max(p.Seconds, 0.001))
	p.Loads, p.CPU = uint64(after.loads-before.loads), after.percentSince(before)
	if p.Events > 0 {
		p.CPUEach = round((after.cpu - before.cpu) * 1e6 / float64(p.Events))
	}
}

// add adds a phase, and judges it.
func (r *Result) add(p Phase, t *tally) {
	r.Result.Phases = append(r.Result.Phases, p)
	wrong, first := t.faults()
	if p.Missed > 0 && first == "" {
		first = fmt.Sprintf("%d of %d readers missed the last document", p.Missed, p.Readers)
	}
	v := &r.Verdict
	v.Checked += t.events()
	v.Violations += wrong + uint64(p.Missed)
	if v.First == "" {
		v.First = first
	}
	v.OK = v.Violations == 0
}

// Err returns nil if every reader got what was written, and the last document in time.
func (r *Result) Err() error {
	switch v := r.Verdict; {
	case !v.OK:
		return isotone.Errorf(isotone.CodeInternal, "%d events or readers were wrong; the first: %s", v.Violations, v.First)
	case v.Checked == 0:
		return isotone.Errorf(isotone.CodeInternal, "no reader got an event")
	}
	return nil
}

// name says what a phase, or a second, uses.
func name(secure bool) string {
	if secure {
		return "TLS"
	}
	return "plain"
}

// Summary returns what the run has shown, as a few lines of text.
func (r *Result) Summary() string {
	var b strings.Builder
	s := &r.Settings
	fmt.Fprintf(&b, "%s readers of a document of %d bytes from %s\n\n", bench.Group(s.Connections), s.Bytes, s.Source)
	b.WriteString("       events  events/s  loads/s  lag: first  last reader  worst   CPU    per 1,000 events  to connect a reader\n")
	for _, p := range r.Result.Phases {
		fmt.Fprintf(&b, "%-5s%8s  %8s  %7.2f  %7.0f ms  %8.0f ms  %5.0f ms  %3.0f %%  %13.1f ms  %16.0f µs\n", name(p.TLS), bench.Group(p.Events),
			bench.Group(math.Round(p.EventsPerS)), float64(p.Loads)/max(p.Seconds, 0.001), p.FirstMS, p.LastMS, p.WorstMS, p.CPU, p.CPUEach, p.Connect.CPUEach)
	}
	b.WriteByte('\n')
	for _, p := range r.Result.Phases {
		if p.NotLoaded > 0 {
			fmt.Fprintf(&b, "%-10s %s: %d documents were replaced before the node loaded them\n", "not loaded", name(p.TLS), p.NotLoaded)
		}
		if p.PassedOver > 0 {
			fmt.Fprintf(&b, "%-10s %s: %d events, because there was a newer document\n", "passed by", name(p.TLS), p.PassedOver)
		}
	}
	if cost := r.cost(); cost != "" {
		fmt.Fprintf(&b, "%-10s %s\n", "TLS costs", cost)
	}
	fmt.Fprintf(&b, "%-10s %s\n", "verdict", r.verdict())
	if r.Result.Interrupted {
		b.WriteString("Interrupted before its end.\n")
	}
	return b.String()
}

// verdict is the verdict as a line.
func (r *Result) verdict() string {
	v := r.Verdict
	if !v.OK {
		return fmt.Sprintf("%d EVENTS OR READERS ARE WRONG; the first: %s", v.Violations, v.First)
	}
	ok := fmt.Sprintf("ok: all %s events are what was written, in order", bench.Group(v.Checked))
	if !r.Result.Interrupted {
		ok += "; no reader missed the last one"
	}
	return ok
}

// cost compares the phases; "": there are not two.
func (r *Result) cost() string {
	if len(r.Result.Phases) != 2 {
		return ""
	}
	plain, secure := r.Result.Phases[0], r.Result.Phases[1]
	if plain.CPUEach <= 0 || plain.Connect.CPUEach <= 0 {
		return "" // so little that the clock of the kernel shows nothing
	}
	return fmt.Sprintf("%.1f times the processor time for an event, %.1f times for a connection", secure.CPUEach/plain.CPUEach, secure.Connect.CPUEach/plain.Connect.CPUEach)
}

// round rounds to three decimal places.
func round(f float64) float64 { return math.Round(f*1e3) / 1e3 }
