package survey

import (
	"fmt"
	"io"
	"math"
	"net"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"
	"unicode"
)

// WriteSummary writes the state document of one node as a few lines of text, with example
// commands. A nil state means that there is none yet.
func WriteSummary(w io.Writer, s *State) error {
	var out strings.Builder
	if s == nil {
		out.WriteString("Isotone: this node is starting; try again in a second.\n")
		_, err := io.WriteString(w, out.String())
		return err
	}
	fmt.Fprintf(&out, "Isotone %s: node %d at %s %s, up %s\n", or(s.Version), s.Node.ID, or(s.Node.Addr), roleVerb(s.Node), uptime(s.Node.UptimeSeconds))
	if !s.Node.Ready {
		fmt.Fprintf(&out, "Not ready: %s\n", or(s.Node.NotReady))
	}
	for _, m := range s.Members {
		if warning := s.clockWarning(m); warning != "" {
			fmt.Fprintf(&out, "Warning: %s\n", warning)
		}
	}
	out.WriteByte('\n')
	t := tabwriter.NewWriter(&out, 0, 0, 3, ' ', 0)
	leader := "none is known"
	if s.Leader != nil {
		leader = fmt.Sprintf("node %d at %s", s.Leader.NodeID, or(s.Leader.Addr))
	}
	fmt.Fprintf(t, "leader\t%s, term %d, %s reads\n", leader, s.Term, or(s.ReadMode))
	fmt.Fprintf(t, "cluster\t%s\n", or(s.ClusterID))
	fmt.Fprintf(t, "now\t%s timestamps, %s IDs, %s requests, %s errors per second\n", perSecond(s.Rates.TimestampsPerSecond),
		perSecond(s.Rates.IDsPerSecond), perSecond(s.Rates.RequestsPerSecond), perSecond(s.Rates.ErrorsPerSecond))
	fmt.Fprintf(t, "latency\tp50 %s, p99 %s, max %s\n", duration(s.Latency.P50), duration(s.Latency.P99), duration(s.Latency.Max))
	if s.Epoch != nil {
		if ahead := s.Epoch.LeadSeconds; ahead < 0 {
			fmt.Fprintf(t, "time\t%s behind this node's clock\n", span(-ahead))
		} else {
			fmt.Fprintf(t, "time\t%s ahead of this node's clock\n", span(ahead))
		}
	}
	if s.Interval != nil {
		fmt.Fprintf(t, "interval\t%s, of the cluster clock\n", s.Interval.cell())
	}
	if n := s.Timelines; n != nil && n.Total > 0 {
		fmt.Fprintf(t, "timelines\t%s; this node serves %s requests for them per second\n", grouped(float64(n.Total)), perSecond(n.Load.Requests))
	}
	if s.Clock.UTC != nil {
		fmt.Fprintf(t, "UTC\t%s, as this machine tells\n", s.Clock.UTC.text())
	}
	_ = t.Flush()
	out.WriteByte('\n')
	t = tabwriter.NewWriter(&out, 0, 0, 3, ' ', 0)
	fmt.Fprintln(t, "MEMBER\tCLIENTS\tPEERS\tROLE\tCONNECTED\tLAG\tCLOCK")
	seen := s.clocks()
	for _, m := range s.Members {
		fmt.Fprintf(t, "%d\t%s\t%s\t%s\t%s\t%s\t%s\n", m.NodeID, or(m.Addr), or(m.PeerAddr), memberRole(s, m), connected(m), lag(m.LagEntries), seen.of(m.NodeID))
	}
	_ = t.Flush()
	out.WriteString(seen.legend())
	writeCommands(&out, s)
	_, err := io.WriteString(w, out.String())
	return err
}

// writeCommands writes example commands, with the address of the leader.
func writeCommands(w io.Writer, s *State) {
	addr := s.Node.Addr
	if s.Leader != nil && s.Leader.Addr != "" {
		addr = s.Leader.Addr
	}
	host, port, err := net.SplitHostPort(or(addr))
	if err != nil {
		return
	}
	fmt.Fprintf(w, "\nTry:\n\n"+
		"  curl '%[1]s/timestamp?format=json'\n"+
		"  curl %[1]s/state\n"+
		"  redis-cli -h %[2]s -p %[3]s TS 1\n"+
		"  isotone status %[1]s --watch\n\n"+
		"In a browser, this address shows a page with charts.\n", addr, host, port)
}

// noFigure stands for an unknown value.
const noFigure = "-"

// or returns text from a node as one line without control characters, which a terminal would
// interpret, or noFigure if it is empty.
func or(text string) string {
	text = strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return ' '
		}
		return r
	}, text)
	if text == "" {
		return noFigure
	}
	return text
}

func roleVerb(n Node) string {
	switch {
	case n.Forming:
		return "is forming its cluster"
	case n.Role == "leader":
		return "leads"
	case n.Role == "follower":
		return "follows"
	}
	return "is " + or(n.Role)
}

func memberRole(s *State, m Member) string {
	switch {
	case s.Node.Forming:
		return noFigure
	case s.Leader != nil && s.Leader.NodeID == m.NodeID:
		return "leader"
	case m.Learner:
		return "learner"
	case m.Self:
		return or(s.Node.Role)
	}
	return "follower"
}

func connected(m Member) string {
	if m.Self || m.Connected {
		return "yes"
	}
	return "no"
}

func lag(entries *uint64) string {
	if entries == nil {
		return noFigure
	}
	return strconv.FormatUint(*entries, 10)
}

// perSecond formats a rate, without decimals from 100 on.
func perSecond(rate float64) string {
	switch {
	case math.IsNaN(rate) || math.IsInf(rate, 0):
		return noFigure
	case rate >= 100 || rate == math.Trunc(rate):
		return grouped(rate)
	case rate >= 10:
		return strconv.FormatFloat(rate, 'f', 1, 64)
	}
	return strconv.FormatFloat(rate, 'f', 2, 64)
}

// grouped formats an integer in groups of three digits.
func grouped(n float64) string {
	text := strconv.FormatFloat(n, 'f', 0, 64)
	for i := len(text) - 3; i > 0 && text[i-1] != '-'; i -= 3 {
		text = text[:i] + " " + text[i:]
	}
	return text
}

func duration(seconds *float64) string {
	if seconds == nil {
		return noFigure
	}
	return digits(*seconds, 3)
}

func signed(seconds float64) string {
	text := span(seconds)
	if seconds > 0 {
		return "+" + text
	}
	return text
}

// lead formats how far issued time is ahead of a clock; one that is behind has a word, as people overlook a sign.
func lead(seconds float64) string {
	if seconds < 0 {
		return "behind " + span(-seconds)
	}
	return span(seconds)
}

// digits formats a time with n digits and a suitable unit: 120 µs, 3.10 ms.
func digits(seconds float64, n int) string {
	size := math.Abs(seconds)
	switch {
	case math.IsNaN(seconds) || math.IsInf(seconds, 0):
		return noFigure
	case size == 0:
		return "0 s"
	case size < 0.9995e-6:
		return precise(seconds*1e9, n) + " ns"
	case size < 0.9995e-3:
		return precise(seconds*1e6, n) + " µs"
	case size < 0.9995:
		return precise(seconds*1e3, n) + " ms"
	}
	return precise(seconds, n) + " s"
}

// precise formats a number with n digits, or more if the integer part has more.
func precise(f float64, n int) string {
	after := n - 1 - int(math.Floor(math.Log10(math.Abs(f))))
	return strconv.FormatFloat(f, 'f', max(0, after), 64)
}

// uptime formats a time by its two largest units.
func uptime(seconds float64) string {
	if math.IsNaN(seconds) || seconds < 0 || seconds > 1e9 {
		return noFigure
	}
	d := time.Duration(seconds) * time.Second
	switch {
	case d >= 24*time.Hour:
		return fmt.Sprintf("%d d %d h", d/(24*time.Hour), d%(24*time.Hour)/time.Hour)
	case d >= time.Hour:
		return fmt.Sprintf("%d h %d min", d/time.Hour, d%time.Hour/time.Minute)
	case d >= time.Minute:
		return fmt.Sprintf("%d min %d s", d/time.Minute, d%time.Minute/time.Second)
	}
	return fmt.Sprintf("%d s", d/time.Second)
}
