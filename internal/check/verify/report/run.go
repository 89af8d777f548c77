package report

import (
	"fmt"
	"math"
	"math/big"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/isotone/isotone/internal/check/bench"
	"github.com/isotone/isotone/internal/check/verify"
)

// textMax bounds a text of the system under test that is shown, in bytes. The rest of a longer message says little.
const textMax = 400

// run is a result whose texts can be shown.
type run struct{ *verify.Result }

// shown returns a copy of r with all its texts cleaned.
func shown(r *verify.Result) run {
	c := *r
	for _, s := range []*string{&c.Isotone, &c.System, &c.Version, &c.Machine} {
		*s = clean(*s)
	}
	for _, list := range []*[]string{&c.Command, &c.Nodes, &c.LeftOut} {
		*list = slices.Clone(*list)
		for i, s := range *list {
			(*list)[i] = clean(s)
		}
	}
	c.Anomalies, c.Faults, c.Errors = slices.Clone(c.Anomalies), slices.Clone(c.Faults), slices.Clone(c.Errors)
	for i := range c.Anomalies {
		a := &c.Anomalies[i]
		a.Earlier.First, a.Later.First = clean(a.Earlier.First), clean(a.Later.First)
	}
	for i := range c.Faults {
		c.Faults[i].Kind, c.Faults[i].Note = clean(c.Faults[i].Kind), clean(c.Faults[i].Note)
	}
	for i := range c.Errors {
		c.Errors[i].Message = clean(c.Errors[i].Message)
	}
	return run{&c}
}

// System returns the name of the system as it can be shown.
func System(r *verify.Result) string { return clean(r.System) }

// clean returns text without what would not be shown as it is: control characters, marks that change the direction of
// text, invalid UTF-8. It is one line of at most [textMax] bytes.
func clean(text string) string {
	text = strings.Map(func(r rune) rune {
		switch {
		case unicode.IsSpace(r):
			return ' '
		case !unicode.IsPrint(r):
			return unicode.ReplacementChar
		}
		return r
	}, text)
	if len(text) <= textMax {
		return text
	}
	end := textMax - len("…")
	for !utf8.RuneStart(text[end]) {
		end--
	}
	return text[:end] + "…"
}

// node returns the name of a node.
func (r run) node(i int) string {
	if i < 0 || i >= len(r.Nodes) {
		return fmt.Sprintf("node %d", i)
	}
	return r.Nodes[i]
}

// hit returns the names of the nodes that a fault hit, and by how much it set their clocks.
func (r run) hit(f *verify.Fault) string {
	names := make([]string, len(f.Nodes))
	for i, n := range f.Nodes {
		names[i] = r.node(n)
	}
	text := strings.Join(names, ", ")
	switch off := span(math.Abs(float64(f.ClockMS)) / 1e3); {
	case f.ClockMS > 0:
		text += ": " + off + " ahead"
	case f.ClockMS < 0:
		text += ": " + off + " behind"
	}
	return text
}

// fault returns the kind of a fault and what it hit.
func (r run) fault(f *verify.Fault) string { return strings.TrimSpace(f.Kind + " " + r.hit(f)) }

// noted returns the same, and what became of it.
func (r run) noted(f *verify.Fault) string {
	if f.Note == "" {
		return r.fault(f)
	}
	return r.fault(f) + ", " + f.Note
}

// end returns when a fault ended, which is not before it began. One that is under way ends with the run.
func (r run) end(f *verify.Fault) float64 {
	if f.EndS == 0 {
		return max(f.AtS, r.Seconds)
	}
	return max(f.AtS, f.EndS)
}

// span returns a time in seconds as text.
func span(seconds float64) string { return bench.Micros(seconds * 1e6).String() }

// millis returns a time in milliseconds as text.
func millis(ms float64) string { return span(ms / 1e3) }

// count returns a number of things.
func count[T int | uint64](n T, what string) string {
	switch {
	case n == 1:
	case strings.HasSuffix(what, "s"):
		what += "es"
	default:
		what += "s"
	}
	return bench.Group(n) + " " + what
}

// bounds returns the first and the last number of a call. They are nil if it has none that can be read.
func bounds(c *verify.Call) (first, last *big.Int) {
	first, ok := new(big.Int).SetString(c.First, 10)
	if !ok {
		return nil, nil
	}
	last = new(big.Int).SetUint64(max(c.Count, 1) - 1)
	return first, last.Add(last, first)
}

// latest returns the latest time of an interval that a call got.
func latest(c *verify.Call) string {
	if _, last := bounds(c); last != nil {
		return last.String()
	}
	return c.First
}

// numbers returns what a call got.
func numbers(c *verify.Call) string {
	if _, last := bounds(c); last != nil && c.Count > 1 {
		return c.First + " to " + last.String()
	}
	return c.First
}

// common returns the numbers that two calls both got, or those of the later one if that is not known.
func common(a *verify.Anomaly) string {
	first, last := bounds(&a.Earlier)
	from, to := bounds(&a.Later)
	if first == nil || from == nil {
		return numbers(&a.Later)
	}
	if first.Cmp(from) > 0 {
		from = first
	}
	if last.Cmp(to) < 0 {
		to = last
	}
	switch from.Cmp(to) {
	case -1:
		return from.String() + " to " + to.String()
	case 0:
		return from.String()
	}
	return numbers(&a.Later)
}
