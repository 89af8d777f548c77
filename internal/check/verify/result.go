package verify

import (
	"encoding/json"
	"io"
	"time"

	"github.com/isotone/isotone/internal/check/verify/driver"
)

// An Order is what a system may promise of the numbers that it hands out, weakest first.
type Order string

// The orders. Each includes those before it.
const (
	// Unique: no number is handed out twice.
	Unique Order = "unique"
	// PerClient: besides, the numbers that one client gets, one call after the other, increase.
	PerClient Order = "client"
	// RealTime: besides, a call that begins after another has ended gets larger numbers than that one, whoever
	// calls. It is linearizability for an object that hands out increasing numbers.
	RealTime Order = "real-time"
)

// Intervals is what a clock may promise that answers with the earliest and the latest time that it may be: if one interval was read
// before another, its earliest time is not after the latest of the other. It is neither stronger nor weaker than an order of numbers.
const Intervals Order = driver.Intervals

// Orders lists all orders of numbers, weakest first.
var Orders = []Order{Unique, PerClient, RealTime}

// OrdersBeside returns all orders that are judged where one is promised, weakest first.
func OrdersBeside(promised Order) []Order {
	if promised == Intervals {
		return []Order{Intervals}
	}
	return Orders
}

// Result is what a run has seen. It is the JSON form of a report, and all that the HTML form is made of.
type Result struct {
	Isotone string    `json:"isotone"` // the version of this program
	At      time.Time `json:"at"`      // when the run began
	// System is the name of the driver, Version what it says of the system.
	System  string `json:"system"`
	Version string `json:"version"`
	// Command repeats the run: its seed decides which faults begin when, not what processes do meanwhile.
	Command []string `json:"command"`
	Seed    uint64   `json:"seed"`
	CPUs    int      `json:"cpus"`
	// Machine is what runs nodes and clients, for example its operating system and architecture.
	Machine string `json:"machine"`

	Nodes     []string `json:"nodes"` // names, in the order in which Node and Fault.Nodes number them, from 0
	Clients   int      `json:"clients"`
	Processes int      `json:"processes"` // that the clients are spread over
	// Network: each node had a network of its own, so that links could be cut.
	Network bool `json:"network"`
	// LeftOut says which kinds of faults were not possible, and why.
	LeftOut []string `json:"left_out"`

	Seconds     float64 `json:"seconds"`
	Interrupted bool    `json:"interrupted"`
	// Answers counts calls that got numbers or an interval, Numbers the numbers, Failed calls that got nothing.
	Answers uint64 `json:"answers"`
	Numbers uint64 `json:"numbers"`
	Failed  uint64 `json:"failed"`

	Verdicts []Verdict `json:"verdicts"` // one for each of OrdersBeside what is promised
	// Anomalies are the first violations, of each order as many, in the order in which they were found.
	Anomalies []Anomaly `json:"anomalies"`
	// Malformed counts answers that are no numbers at all.
	Malformed uint64 `json:"malformed"`

	Faults []Fault `json:"faults"` // in the order in which they began
	// ColumnMS is the width of a column in milliseconds. The first begins at 0.
	ColumnMS int      `json:"column_ms"`
	Columns  []Column `json:"columns"`
	// P50MS, P99MS and MaxMS are latencies of calls with an answer; LongestMS is the longest time without one.
	P50MS     float64 `json:"p50_ms"`
	P99MS     float64 `json:"p99_ms"`
	MaxMS     float64 `json:"max_ms"`
	LongestMS float64 `json:"longest_ms"`
	// Errors counts the failures by message, the most frequent first; at most ErrorsMax of them.
	Errors []ErrorCount `json:"errors"`
}

const (
	// AnomaliesMax bounds Result.Anomalies, ErrorsMax Result.Errors.
	AnomaliesMax = 100
	ErrorsMax    = 20
)

// Verdict is whether the numbers were in an order.
type Verdict struct {
	Order    Order `json:"order"`
	Promised bool  `json:"promised"` // by the system, as its driver says
	// Violations counts answers that were not in this order and would be in the next weaker one. After the
	// first they may be its consequences.
	Violations uint64 `json:"violations"`
	// Unverified counts answers for which the memory of the checker did not suffice.
	Unverified uint64 `json:"unverified"`
}

// Anomaly is one violation.
type Anomaly struct {
	Order Order `json:"order"` // the weakest that is violated
	// Earlier ended first. For a duplicate of a number that was handed out long before, only its First is known.
	Earlier Call `json:"earlier"`
	Later   Call `json:"later"`
}

// Call is one call of a client that got numbers, or an interval: First is the earliest time then, and Count how many there are from
// that to the latest.
type Call struct {
	Known  bool    `json:"known"` // who called and when
	Client int     `json:"client"`
	Node   int     `json:"node"` // that was asked
	BeganS float64 `json:"began_s"`
	EndedS float64 `json:"ended_s"`
	First  string  `json:"first"` // as the driver wrote it
	Count  uint64  `json:"count"`
}

// Fault is one fault that was injected.
type Fault struct {
	Kind  string `json:"kind"`  // one of FaultKinds, or EndedByItself
	Nodes []int  `json:"nodes"` // that it hit
	// ClockMS is by how much their wall clocks were ahead meanwhile; negative if behind.
	ClockMS int64   `json:"clock_ms,omitempty"`
	AtS     float64 `json:"at_s"`
	// EndS is when the fault ended: the process was started again, or the link was whole. It is 0 while it is under way.
	EndS float64 `json:"end_s"`
	// SilentMS is the longest time without an answer that began between AtS and two seconds after EndS, or the next fault.
	SilentMS float64 `json:"silent_ms"`
	Answers  uint64  `json:"answers"` // of calls that ended during the fault
	Failed   uint64  `json:"failed"`
	// Note says what the system refused, so that the fault was another one than its kind says: "not removed: …".
	Note string `json:"note,omitempty"`
}

// Column is what ended within a span of time.
type Column struct {
	Answers uint32  `json:"answers"`
	Failed  uint32  `json:"failed"`
	P50MS   float64 `json:"p50_ms"`
	P99MS   float64 `json:"p99_ms"`
	MaxMS   float64 `json:"max_ms"`
}

// ErrorCount is how often calls failed in one way.
type ErrorCount struct {
	Message string `json:"message"`
	Count   uint64 `json:"count"`
}

// Held returns the strongest order that held, "" if not even uniqueness did.
func (r *Result) Held() (held Order) {
	for _, v := range r.Verdicts {
		if v.Violations > 0 {
			return held
		}
		held = v.Order
	}
	return held
}

// Broken reports whether an answer broke what the system promises.
func (r *Result) Broken() bool {
	broken := r.Malformed > 0
	for _, v := range r.Verdicts {
		broken = broken || v.Promised && v.Violations > 0
	}
	return broken
}

// WriteJSON writes the result. A list without elements is one, too, not null.
func (r *Result) WriteJSON(w io.Writer) error {
	out := *r
	out.Command, out.Nodes, out.LeftOut = list(r.Command), list(r.Nodes), list(r.LeftOut)
	out.Verdicts, out.Anomalies, out.Faults, out.Columns, out.Errors = list(r.Verdicts), list(r.Anomalies), list(r.Faults), list(r.Columns), list(r.Errors)
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	return e.Encode(out)
}

func list[T any](elements []T) []T {
	if elements == nil {
		return []T{}
	}
	return elements
}
