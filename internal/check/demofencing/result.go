package demofencing

import (
	"fmt"
	"strings"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/check/bench"
)

// Schema identifies the JSON format of a [Result].
const Schema = "isotone-demo-fencing/1"

// Result is what a run has shown. Times whose names end in S are seconds.
type Result struct {
	bench.Head
	Settings Settings `json:"settings"`
	Result   Outcome  `json:"result"`
	Verdict  Verdict  `json:"verdict"`
}

// Settings are the options of the run.
type Settings struct {
	Nodes  int     `json:"nodes"`
	Rounds int     `json:"rounds"`
	TTLS   float64 `json:"ttl_s"`
}

// Outcome is what has happened.
type Outcome struct {
	ElapsedS float64 `json:"elapsed_s"`
	// Interrupted: the run was ended before its time. Only whole rounds are reported.
	Interrupted bool     `json:"interrupted"`
	Rounds      []*Round `json:"rounds"`
}

// Verdict is the result of the checks.
type Verdict struct {
	bench.Judgement
	// Refused is how many late writes the fence has refused, Overwritten how many have replaced the next holder's value where there is none.
	Refused     int `json:"refused"`
	Overwritten int `json:"overwritten"`
}

// Round is one pause of a holder.
type Round struct {
	Number int     `json:"number"` // from 1
	Events []Event `json:"events"`
	// Done: it has come to its end. Fenced and Plain are what the two keys have then.
	Done   bool   `json:"done"`
	Fenced string `json:"fenced"`
	Plain  string `json:"plain"`
}

// What says what has happened.
type What string

// What happens in a round, in this order; holder A writes twice.
const (
	Locked  What = "locked"  // the lock was granted
	Wrote   What = "wrote"   // both keys were written, or one was
	Paused  What = "paused"  // SIGSTOP
	Waited  What = "waited"  // the holder has begun to wait for the lock
	Resumed What = "resumed" // SIGCONT
)

// Event is something that has happened.
type Event struct {
	AtS    float64 `json:"at_s"`   // since the round began
	Holder string  `json:"holder"` // A or B
	What   What    `json:"what"`
	// Token is that of the latest grant of the holder.
	Token isotone.Timestamp64 `json:"token,omitempty"`
	// Value is what was written, and Fence where the fence is that has refused it, as 32 hexadecimal digits; "": it was accepted.
	Value string `json:"value,omitempty"`
	Fence string `json:"fence,omitempty"`
	// Held: the holder believes afterwards that it holds the lock.
	Held bool `json:"held"`
}

// What the holders write. A writes valueLate after its pause.
const (
	valueA    = "A's first half"
	valueB    = "B's work"
	valueLate = "A's second half"
)

// last returns the latest event of a kind of a holder, or a zero one.
func (r *Round) last(holder string, what What) (found Event) {
	for _, e := range r.Events {
		if e.Holder == holder && e.What == what {
			found = e
		}
	}
	return found
}

// refused reports whether the late write was refused.
func (r *Round) refused() bool { return r.last("A", Wrote).Fence != "" }

// fault says which promise a round that is done has broken, or returns "". before is the largest token of earlier rounds.
func (r *Round) fault(before isotone.Timestamp64) string {
	a, b := r.last("A", Locked).Token, r.last("B", Locked).Token
	switch {
	case a <= before || b <= a:
		return fmt.Sprintf("round %d: the tokens do not grow: %d before, then %d and %d", r.Number, before, a, b)
	case !r.refused():
		return fmt.Sprintf("round %d: the fence has accepted a write under token %d after one under %d", r.Number, a, b)
	case r.last("B", Wrote).Fence != "":
		return fmt.Sprintf("round %d: the fence has refused the holder of the lock", r.Number)
	case r.Fenced != valueB:
		return fmt.Sprintf("round %d: the fenced key has %q, want %q", r.Number, r.Fenced, valueB)
	}
	return ""
}

// add adds a round that is done, and judges it.
func (r *Result) add(round *Round) {
	var before isotone.Timestamp64
	if n := len(r.Result.Rounds); n > 0 {
		before = r.Result.Rounds[n-1].last("B", Locked).Token
	}
	r.Result.Rounds = append(r.Result.Rounds, round)
	v := &r.Verdict
	if fault := round.fault(before); fault != "" {
		v.Violations++
		if v.First == "" {
			v.First = fault
		}
	}
	if round.refused() {
		v.Refused++
	}
	if round.Plain == valueLate {
		v.Overwritten++
	}
	v.OK = v.Violations == 0
}

// Err returns nil if the fence has refused all late writes and no other.
func (r *Result) Err() error {
	switch v := r.Verdict; {
	case v.Violations > 0:
		return isotone.Errorf(isotone.CodeInternal, "%d of %d rounds broke the promise; the first: %s", v.Violations, len(r.Result.Rounds), v.First)
	case len(r.Result.Rounds) == 0:
		return isotone.Errorf(isotone.CodeInternal, "no round came to its end")
	}
	return nil
}

// verdict is the result in one line.
func (r *Result) verdict() string {
	v, n := r.Verdict, len(r.Result.Rounds)
	if v.Violations > 0 {
		return "failed: " + v.First
	}
	return fmt.Sprintf("ok: the fence refused %d of %d late writes; without a fence, %d replaced the work of the next holder", v.Refused, n, v.Overwritten)
}

// Summary returns the verdict as text.
func (r *Result) Summary() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%-10s %s\n", "verdict", r.verdict())
	if r.Result.Interrupted {
		b.WriteString("Interrupted before its end.\n")
	}
	return b.String()
}
