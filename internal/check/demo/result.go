package demo

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/isotone/isotone"
)

// Result is what the clients of a demo saw. Times whose names end in S are seconds since the load
// began, those in MS milliseconds.
type Result struct {
	// Isotone is the version, At when the load began.
	Isotone string    `json:"isotone"`
	At      time.Time `json:"at"`
	// Nodes, Clients and How are those of the run.
	Nodes   int `json:"nodes"`
	Clients int `json:"clients"`
	How     How `json:"how"`
	// CPUs is the number of processors, which nodes and clients share.
	CPUs int `json:"cpus"`
	// Seconds is how long the load lasted.
	Seconds float64 `json:"seconds"`
	// Interrupted: it was ended before its time.
	Interrupted bool `json:"interrupted"`
	// ColumnMS is the length of a column. What is left of the run at the end has none.
	ColumnMS int      `json:"column_ms"`
	Columns  []Column `json:"columns"`
	// Kills are the ends of leaders.
	Kills []Kill `json:"kills"`
	// Answers is the number of calls that were answered, Failed of those that were not.
	Answers uint64 `json:"answers"`
	Failed  uint64 `json:"failed"`
	// Failures are the first errors of calls.
	Failures []string `json:"failures"`
	// Checked is how many answers were checked, Violations how many were wrong, and Violation the
	// first of these.
	Checked    uint64 `json:"checked"`
	Violations uint64 `json:"violations"`
	Violation  string `json:"violation,omitempty"`
	// Unverified is how many answers came so late that only their order could be checked.
	Unverified uint64 `json:"unverified,omitempty"`
	// P50MS, P99MS and MaxMS are the times that calls took, with all retries.
	P50MS float64 `json:"p50_ms"`
	P99MS float64 `json:"p99_ms"`
	MaxMS float64 `json:"max_ms"`
	// LongestMS is the longest time without an answer to any client, whenever that was.
	LongestMS float64 `json:"longest_ms"`
}

// Column is what happened in a part of the run.
type Column struct {
	// Answers is the number of answers, Leader the node that led in the middle; 0: none was known.
	Answers uint32 `json:"answers"`
	Leader  uint64 `json:"leader"`
}

// Kill is the end of a leader.
type Kill struct {
	// AtS is when the signal was sent, and Node its receiver.
	AtS  float64 `json:"at_s"`
	Node uint64  `json:"node"`
	// Successor is the next leader; 0: none until the end of the run.
	Successor uint64 `json:"successor"`
	// GapMS is the longest time without an answer to any client of those that began within a second
	// after the kill, and GapAtS when it began.
	GapMS  float64 `json:"gap_ms"`
	GapAtS float64 `json:"gap_at_s"`
	// Closed: the next kill or the end of the run has come, so the gap is final.
	Closed bool `json:"closed"`
	// Around counts answers in each millisecond, from AroundMS before the kill on. It may end early.
	Around   []uint32 `json:"around"`
	AroundMS int      `json:"around_ms"`
}

// columnMS is the length of a column. aroundBefore and aroundAfter bound what Kill.Around has.
const (
	columnMS     = 50
	aroundBefore = 20
	aroundAfter  = 180
)

// Err returns nil if every call was answered, and every answer right.
func (r *Result) Err() error {
	switch {
	case r.Violations > 0:
		return isotone.Errorf(isotone.CodeInternal, "%d of %d answers broke the promise; the first: %s", r.Violations, r.Checked, r.Violation)
	case r.Failed > 0:
		return isotone.Errorf(isotone.CodeInternal, "%d calls failed; the first: %s", r.Failed, r.Failures[0])
	case r.Answers == 0:
		return isotone.Errorf(isotone.CodeInternal, "no call was answered")
	}
	return nil
}

// gaps returns the times without an answer of all kills, sorted.
func (r *Result) gaps() []float64 {
	var list []float64
	for _, k := range r.Kills {
		list = append(list, k.GapMS)
	}
	slices.Sort(list)
	return list
}

// WriteJSON writes r as indented JSON.
func (r *Result) WriteJSON(w io.Writer) error {
	e := json.NewEncoder(w)
	e.SetIndent("", " ")
	return e.Encode(r)
}

// resultMax bounds the file of a result in bytes, of which the longest run makes 2 MB.
const resultMax = 16 << 20

// ReadResult reads what [Result.WriteJSON] wrote.
func ReadResult(from io.Reader) (*Result, error) {
	var r Result
	limited := io.LimitReader(from, resultMax)
	if err := json.NewDecoder(limited).Decode(&r); err != nil {
		return nil, isotone.Errorf(isotone.CodeInvalidArgument, "this is no result of isotone demo failover --json: %v", err)
	}
	if fault := r.fault(); fault != "" {
		return nil, isotone.Errorf(isotone.CodeInvalidArgument, "this is no result of isotone demo failover --json: %s", fault)
	}
	return &r, nil
}

// fault says what cannot be drawn, or returns "".
func (r *Result) fault() string {
	limit := int(durationMax/time.Millisecond)/columnMS + 1
	switch {
	case r.Nodes != Nodes:
		return fmt.Sprintf("nodes is %d, want %d", r.Nodes, Nodes)
	case r.ColumnMS != columnMS:
		return fmt.Sprintf("column_ms is %d, want %d", r.ColumnMS, columnMS)
	case len(r.Columns) == 0 || len(r.Columns) > limit:
		return fmt.Sprintf("it has %d columns, want 1 to %d", len(r.Columns), limit)
	case r.Failed > 0 && len(r.Failures) == 0:
		return "failed calls, but no error of one"
	case len(r.Kills) > killsMax:
		return fmt.Sprintf("it has %d kills, want at most %d", len(r.Kills), killsMax)
	}
	end := float64((len(r.Columns)+1)*columnMS) / 1000
	for _, k := range r.Kills {
		if k.AtS < 0 || k.AtS > end || k.GapMS < 0 || k.AroundMS < 0 || k.AroundMS > aroundBefore || len(k.Around) > aroundBefore+aroundAfter {
			return fmt.Sprintf("a kill at %v s, outside of the run or with too much around it", k.AtS)
		}
	}
	return ""
}
