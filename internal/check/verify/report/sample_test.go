package report_test

import (
	"math"
	"math/rand/v2"
	"sort"
	"time"

	"github.com/isotone/isotone/internal/check/verify"
)

// verdicts returns the verdicts of a system that promises real-time order.
func verdicts(violations ...uint64) []verify.Verdict {
	list := make([]verify.Verdict, len(verify.Orders))
	for i, order := range verify.Orders {
		list[i] = verify.Verdict{Order: order, Promised: true}
	}
	for i, n := range violations {
		list[i].Violations = n
	}
	return list
}

// good returns a run of six seconds with two faults, by which nothing was broken.
func good() *verify.Result {
	r := &verify.Result{
		Isotone: "v1.0.0", At: time.Date(2026, 11, 27, 12, 0, 0, 0, time.UTC), System: "isotone", Version: "v1.0.0",
		Command: []string{"isotone", "verify", "--system", "isotone", "--duration", "6s", "--seed", "7"}, Seed: 7, CPUs: 2, Machine: "linux/amd64",
		Nodes: []string{"n1", "n2", "n3"}, Clients: 16, Processes: 4, Network: true,
		Seconds: 6, Answers: 119_700, Numbers: 1_197_000, Failed: 31, Verdicts: verdicts(), ColumnMS: 500,
		P50MS: 0.42, P99MS: 3.1, MaxMS: 812, LongestMS: 780,
		Faults: []verify.Fault{
			{Kind: "kill", Nodes: []int{0}, AtS: 1.52, EndS: 2.6, SilentMS: 780, Answers: 6100, Failed: 31},
			{Kind: verify.CutOut, Nodes: []int{1}, AtS: 4.1, EndS: 5.2, SilentMS: 3.4, Answers: 20_800},
		},
		Errors: []verify.ErrorCount{{Message: "read tcp 127.0.0.1:41022: connection reset by peer", Count: 24}, {Message: "timeout", Count: 7}},
	}
	for i := range 12 {
		c := verify.Column{Answers: uint32(10_500 + 100*(i%3)), P50MS: 0.4, P99MS: 2.5, MaxMS: 9 + float64(i)}
		if i == 3 {
			c = verify.Column{Failed: 31}
		}
		r.Columns = append(r.Columns, c)
	}
	return r
}

// broken returns a run with a violation of each order, a duplicate of a number whose holder is not known, and answers that
// are no numbers. Its texts attack the page and the terminal.
func broken() *verify.Result {
	r := good()
	r.System, r.Version = "<b>epicepoch</b>", "1.2 & \x1b[31mred"
	r.Verdicts = verdicts(2, 1, 1)
	r.Malformed = 5
	r.Faults[1].Kind, r.Faults[1].Note = verify.Member, "not removed: <i>no\x1b leader</i>"
	r.Nodes[2] = "n3\u202e</title><script>alert(1)</script>"
	r.Errors[0].Message = "\x00\xff</td></table><img src=x onerror=alert(1)>\r\n\"quoted\" 'single'"
	r.LeftOut = []string{"cut: namespaces need root", "slow-disk: strace is missing"}
	r.Faults = append(r.Faults, verify.Fault{Kind: verify.Clock, Nodes: []int{0, 1}, AtS: 5.3, EndS: 5.8, ClockMS: -1234, Answers: 9900},
		verify.Fault{Kind: verify.ClockKill, Nodes: []int{0}, AtS: 5.89, EndS: 5.95, ClockMS: 2_520_000, Answers: 700})
	call := func(client, node int, began, ended float64, first string, count uint64) verify.Call {
		return verify.Call{Known: true, Client: client, Node: node, BeganS: began, EndedS: ended, First: first, Count: count}
	}
	r.Anomalies = []verify.Anomaly{
		{Order: verify.RealTime, Earlier: call(3, 0, 1.6101, 1.6104, "340282366920938463374607431768211250", 4), Later: call(7, 1, 1.6116, 1.6123, "340282366920938463374607431768211240", 1)},
		{Order: verify.Unique, Earlier: call(3, 0, 4.2001, 4.2009, "1240", 10), Later: call(7, 1, 4.2003, 4.2012, "1245", 10)},
		{Order: verify.PerClient, Earlier: call(5, 2, 5.01, 5.0104, "900", 1), Later: call(5, 2, 5.0105, 5.0109, "899", 1)},
		{Order: verify.Unique, Earlier: verify.Call{First: "17"}, Later: call(1, 0, 5.9, 5.901, "17", 1)},
	}
	return r
}

// interrupted returns a run that was ended during a fault, and before all answers could be verified.
func interrupted() *verify.Result {
	r := good()
	r.Interrupted, r.Seconds, r.Columns = true, 4.3, r.Columns[:9]
	r.Columns[8].Answers /= 2
	r.Faults[1].EndS = 0
	for i := range r.Verdicts {
		r.Verdicts[i].Promised = r.Verdicts[i].Order != verify.RealTime
	}
	r.Verdicts[0].Unverified, r.Verdicts[2].Violations = 12, 3
	return r
}

// intervals returns a run of a clock that told a time that had passed.
func intervals() *verify.Result {
	r := good()
	r.Numbers, r.Verdicts = 0, []verify.Verdict{{Order: verify.Intervals, Promised: true, Violations: 1}}
	r.Anomalies = []verify.Anomaly{{
		Order:   verify.Intervals,
		Earlier: verify.Call{Known: true, Client: 3, Node: 0, BeganS: 1.6101, EndedS: 1.6104, First: "1795759200123456789", Count: 200_001},
		Later:   verify.Call{Known: true, Client: 7, Node: 1, BeganS: 1.6116, EndedS: 1.6123, First: "1795759200122456789", Count: 300_001},
	}}
	return r
}

// results are the samples by name.
func results() map[string]*verify.Result {
	return map[string]*verify.Result{"good": good(), "broken": broken(), "interrupted": interrupted(), "intervals": intervals(), "empty": {}}
}

// kindsOf are what noisy injects.
var kindsOf = []string{"kill", "term", "pause", "cut", verify.CutOut, "slow-disk", verify.Clock}

// noisy returns a run of a length with columns of 100 ms, as a real one would be: rates and latencies vary, and faults
// that follow each other cause silences and failures.
func noisy(seed uint64, length time.Duration) *verify.Result {
	random := rand.New(rand.NewPCG(seed, 0))
	r := good()
	r.Seed, r.Seconds, r.ColumnMS, r.Columns, r.Faults = seed, length.Seconds(), 100, nil, nil
	r.Answers, r.Failed, r.LongestMS, r.MaxMS = 0, 0, 0, 0
	for at := 3 + 2*random.Float64(); at < r.Seconds-6; at += 6 + 10*random.Float64() {
		f := verify.Fault{Kind: kindsOf[random.IntN(len(kindsOf))], Nodes: []int{random.IntN(3)}, AtS: at, EndS: at + 1 + 4*random.Float64(), SilentMS: 2 + 4*random.ExpFloat64()}
		if f.Kind == verify.Clock {
			f.ClockMS = int64(-1000 * f.SilentMS)
		}
		if random.IntN(3) == 0 {
			f.SilentMS = 200 + 300*random.ExpFloat64()
		}
		r.Faults = append(r.Faults, f)
		r.LongestMS = max(r.LongestMS, f.SilentMS)
	}
	rate := 1900.0
	for i := range int(length / (100 * time.Millisecond)) {
		rate += 0.02*(1900-rate) + 40*random.NormFloat64()
		r.Columns = append(r.Columns, noisyColumn(r, random, float64(i)/10, rate))
		r.Answers += uint64(r.Columns[i].Answers)
		r.Failed += uint64(r.Columns[i].Failed)
		r.MaxMS = max(r.MaxMS, r.Columns[i].MaxMS)
	}
	r.Numbers = 10 * r.Answers
	return r
}

// noisyColumn returns a column, and counts its calls for the faults that are under way.
func noisyColumn(r *verify.Result, random *rand.Rand, at, rate float64) verify.Column {
	c := verify.Column{P50MS: 0.4 * math.Exp(0.1*random.NormFloat64())}
	c.P99MS = c.P50MS * (4 + 3*random.ExpFloat64())
	c.MaxMS = c.P99MS * (1.2 + random.ExpFloat64())
	next := sort.Search(len(r.Faults), func(i int) bool { return r.Faults[i].AtS > at+0.1 })
	for i := max(next-2, 0); i < next; i++ { // earlier ones have ended
		f := &r.Faults[i]
		silent := max(min(at+0.1, f.AtS+f.SilentMS/1000)-max(at, f.AtS), 0) / 0.1
		rate *= 1 - silent
		if silent > 0.3 {
			c.Failed = uint32(16 * silent * random.Float64())
			c.MaxMS = f.SilentMS
		}
		if at >= f.AtS && at < f.EndS {
			c.P99MS *= 2
			f.Answers += uint64(rate)
			f.Failed += uint64(c.Failed)
		}
	}
	if c.Answers = uint32(max(rate, 0)); c.Answers < 20 {
		return verify.Column{Failed: c.Failed}
	}
	return c
}

// hundred returns a noisy run of a length that has as many anomalies as a result can have.
func hundred(length time.Duration) *verify.Result {
	r := noisy(3, length)
	r.Verdicts = verdicts(0, 40, 170)
	for i := range verify.AnomaliesMax {
		at := r.Seconds * float64(i+1) / (verify.AnomaliesMax + 1)
		earlier := verify.Call{Known: true, Client: i % 16, Node: i % 3, BeganS: at, EndedS: at + 0.0004, First: "340282366920938463374607431768211250", Count: 10}
		later := verify.Call{Known: true, Client: (i + i%2) % 16, Node: (i + 1) % 3, BeganS: at + 0.0009, EndedS: at + 0.0021, First: "340282366920938463374607431768211240", Count: 1}
		r.Anomalies = append(r.Anomalies, verify.Anomaly{Order: verify.Orders[1+i%2], Earlier: earlier, Later: later})
	}
	return r
}
