package report

import (
	"fmt"
	"strings"

	"github.com/isotone/isotone/internal/check/bench"
	"github.com/isotone/isotone/internal/check/verify"
)

// names are the orders in a sentence, and meanings what each adds to those before it.
var (
	names = map[verify.Order]string{
		verify.Unique: "uniqueness", verify.PerClient: "order for each client", verify.RealTime: "real-time order", verify.Intervals: "order of intervals",
	}
	meanings = map[verify.Order]string{
		verify.Unique:    "No number is handed out twice.",
		verify.PerClient: "The numbers that one client gets, one call after the other, increase.",
		verify.RealTime:  "A call that begins after another has ended gets a larger number, whoever calls. It is linearizability of an object that hands out increasing numbers.",
		verify.Intervals: "If one interval was read before another, whoever reads them, its earliest time is not after the latest of the other: the time of one clock can lie within all of them.",
	}
)

// promise returns the strongest order that is promised, "" if none is, and how many answers broke or may have broken
// what is promised.
func (r run) promise() (strongest verify.Order, violations, unverified uint64) {
	for _, v := range r.Verdicts {
		if v.Promised {
			strongest = v.Order
			violations += v.Violations
			unverified += v.Unverified
		}
	}
	return strongest, violations, unverified
}

// promised reports whether the system promises an order.
func (r run) promised(o verify.Order) bool {
	for _, v := range r.Verdicts {
		if v.Order == o {
			return v.Promised
		}
	}
	return false
}

// headline returns the verdict as a sentence, and what else must be said at once as others.
func (r run) headline() (verdict string, more []string) {
	promised, violations, _ := r.promise()
	switch {
	case violations > 0:
		verdict = fmt.Sprintf("BROKEN: %s promises %s, which was violated by %s of %s.",
			r.System, names[promised], bench.Group(violations), count(r.Answers, "answer"))
		if a := r.first(); a != nil {
			more = append(more, "The first: "+lower(r.sentence(a)))
		}
	case r.Malformed > 0:
		verdict = fmt.Sprintf("BROKEN: %s had no number.", count(r.Malformed, "answer"))
	case r.Answers == 0:
		verdict = "No verdict: no call was answered."
	default:
		verdict, more = r.held()
	}
	if violations > 0 && r.Malformed > 0 {
		more = append(more, fmt.Sprintf("%s had no number.", count(r.Malformed, "answer")))
	}
	if r.Interrupted {
		more = append(more, fmt.Sprintf("The run was interrupted after %s.", span(r.Seconds)))
	}
	return verdict, more
}

// held is the headline of a run in which what is promised held.
func (r run) held() (verdict string, more []string) {
	promised, _, unverified := r.promise()
	held := r.Held()
	what := promised
	if promised == "" {
		what = held
		more = append(more, r.System+" promises no order.")
	} else if held != promised && held != "" {
		more = append(more, fmt.Sprintf("Even %s held, which %s does not promise.", names[held], r.System))
	}
	if what == "" {
		return "No order held.", more
	}
	none := "none out of order"
	if what == verify.Unique {
		none = "no number handed out twice"
	}
	if unverified > 0 {
		none += fmt.Sprintf(" as far as verified (%s not)", bench.Group(unverified))
	}
	return fmt.Sprintf("%s held: %s of %s, %s, %s.", upper(names[what]),
		count(r.Answers, "answer"), count(len(r.Nodes), "node"), count(len(r.Faults), "fault"), none), more
}

// first returns the first anomaly that breaks what is promised, nil if there is none.
func (r run) first() *verify.Anomaly {
	for i := range r.Anomalies {
		if r.promised(r.Anomalies[i].Order) {
			return &r.Anomalies[i]
		}
	}
	return nil
}

// limits says what the verdict leaves open.
func (r run) limits() []string {
	var list []string
	if r.Interrupted {
		list = append(list, fmt.Sprintf("The run was interrupted after %s. What was to come later is missing.", span(r.Seconds)))
	}
	for _, v := range r.Verdicts {
		if v.Unverified > 0 {
			list = append(list, fmt.Sprintf("Not verified for %s: %s, for which the memory of the checker did not suffice. A violation among them may be unnoticed.",
				names[v.Order], count(v.Unverified, "answer")))
		}
	}
	if len(r.Faults) == 0 {
		list = append(list, "No fault was injected.")
	}
	for _, what := range r.LeftOut {
		list = append(list, "Not injected: "+what)
	}
	if r.Clients == 1 {
		list = append(list, "There was one client. The order of calls of different clients was not tested.")
	}
	if !r.Broken() {
		list = append(list, "Another run, with other faults, may find a violation that this one did not.")
	}
	return list
}

// sentence says what was wrong. Of long numbers it has the digits in which they differ.
func (r run) sentence(a *verify.Anomaly) string {
	e, l := &a.Earlier, &a.Later
	before, got := elided(e.First, l.First), elided(l.First, e.First)
	if a.Order == verify.Intervals {
		before, got = elided(e.First, latest(l)), elided(latest(l), e.First)
	}
	switch {
	case a.Order == verify.Unique && !e.Known:
		return fmt.Sprintf("%s and got %s. It had been handed out before, so long ago that it is not known to whom.", r.asked(l), got)
	case a.Order == verify.Unique:
		return fmt.Sprintf("%s and got %s, which client %d %s from %s.", r.asked(l), common(a), e.Client, had(a), r.node(e.Node))
	case a.Order == verify.Intervals && !e.Known:
		return fmt.Sprintf("%s and got a time of at most %s, which is before %s, the earliest time of an interval that was read before.", r.asked(l), got, before)
	case a.Order == verify.Intervals:
		return fmt.Sprintf("%s, %s after the call of client %d to %s had ended, and got a time of at most %s, which is before %s, the earliest time in that.",
			r.asked(l), span(l.BeganS-e.EndedS), e.Client, r.node(e.Node), got, before)
	case !e.Known:
		return fmt.Sprintf("%s and got %s, a smaller number than %s, which a call had got that ended before.", r.asked(l), got, before)
	case a.Order == verify.PerClient:
		return fmt.Sprintf("%s, %s after its call to %s had ended, and got a smaller number than in that: %s after %s.",
			r.asked(l), span(l.BeganS-e.EndedS), r.node(e.Node), got, before)
	}
	return fmt.Sprintf("%s, %s after the call of client %d to %s had ended, and got a smaller number: %s after %s.",
		r.asked(l), span(l.BeganS-e.EndedS), e.Client, r.node(e.Node), got, before)
}

// had says when the holder of a number got it that another call got, too.
func had(a *verify.Anomaly) string {
	if a.Later.BeganS > a.Earlier.EndedS {
		return fmt.Sprintf("had got %s before", span(a.Later.BeganS-a.Earlier.EndedS))
	}
	return "got at the same time"
}

// record returns a call with all its figures.
func (r run) record(c *verify.Call) string {
	if !c.Known {
		return "unknown: " + numbers(c)
	}
	return fmt.Sprintf("client %d asked %s, %.6f s to %.6f s: %s", c.Client, r.node(c.Node), c.BeganS, c.EndedS, numbers(c))
}

// asked says who called whom and when.
func (r run) asked(c *verify.Call) string {
	if !c.Known {
		return "A client called a node"
	}
	return fmt.Sprintf("Client %d asked %s at %.3f s", c.Client, r.node(c.Node), c.BeganS)
}

// meanwhile says which faults were under way during an anomaly, or else which was the last before it.
func (r run) meanwhile(a *verify.Anomaly) string {
	if !a.Later.Known {
		return ""
	}
	from, to := window(a)
	var under []string
	var last *verify.Fault
	for i := range r.Faults {
		f := &r.Faults[i]
		switch {
		case f.AtS > to:
		case r.end(f) >= from:
			under = append(under, fmt.Sprintf("%s (%.3f s to %.3f s)", r.fault(f), f.AtS, r.end(f)))
		case last == nil || r.end(f) > r.end(last):
			last = f
		}
	}
	switch {
	case len(under) > 0:
		return "Under way: " + strings.Join(under, ", ") + "."
	case last != nil:
		return fmt.Sprintf("No fault was under way. The last one, %s, had ended %s before.", r.fault(last), span(from-r.end(last)))
	}
	return "No fault had been injected until then."
}

// window returns from when until when the calls of an anomaly were under way, as far as that is known.
func window(a *verify.Anomaly) (from, to float64) {
	from, to = a.Later.BeganS, a.Later.EndedS
	if a.Earlier.Known {
		from, to = min(from, a.Earlier.BeganS), max(to, a.Earlier.EndedS)
	}
	return from, to
}

// upper and lower change the first letter. The sentences that they get begin with an ASCII letter.
func upper(s string) string { return strings.ToUpper(s[:1]) + s[1:] }
func lower(s string) string { return strings.ToLower(s[:1]) + s[1:] }
