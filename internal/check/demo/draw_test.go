package demo_test

import (
	"bytes"
	"encoding/xml"
	"errors"
	"flag"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/check/demo"
)

var update = flag.Bool("update", false, "write the golden files")

// golden compares text with a file in testdata.
func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("%s differs (go test -update writes it); got:\n%s", path, got)
	}
}

// sample returns a run of 4.5 s: node 1 is killed after 1.5 s, node 2 after 4.2 s without a successor
// until the end.
func sample() *demo.Result {
	r := &demo.Result{
		Isotone: "test", At: time.Date(2026, 11, 23, 12, 0, 0, 0, time.UTC), Nodes: 3, Clients: 8, How: demo.HowKill, CPUs: 2,
		Seconds: 4.52, ColumnMS: 50, Answers: 21_000, Checked: 21_000, P50MS: 0.2, P99MS: 1.5, MaxMS: 90.25, LongestMS: 230,
	}
	for i := range 91 {
		c := demo.Column{Answers: uint32(200 + 10*(i%7)), Leader: 1}
		switch {
		case i == 30:
			c.Answers, c.Leader = 60, 2
		case i > 84:
			c.Answers, c.Leader = 0, 0
		case i > 30:
			c.Leader = 2
		}
		r.Columns = append(r.Columns, c)
	}
	around := func(silent int) (list []uint32) {
		for ms := range 200 {
			n := uint32(4 + ms%3)
			if ms >= 20 && ms < 20+silent {
				n = 0
			}
			list = append(list, n)
		}
		return list
	}
	r.Kills = []demo.Kill{
		{AtS: 1.5, Node: 1, Successor: 2, GapMS: 6.2, GapAtS: 1.4997, Closed: true, Around: around(6), AroundMS: 20},
		{AtS: 4.23, Node: 2, GapMS: 230, GapAtS: 4.23, Closed: true, Around: around(180), AroundMS: 20},
	}
	return r
}

func TestTimeline_ShowsBarsGapsAndLeaders(t *testing.T) {
	r := sample()
	golden(t, "timeline.txt", r.Timeline(false)+"\n"+r.Summary())
	golden(t, "timeline-color.txt", r.Timeline(true))
	for _, line := range strings.Split(r.Timeline(false), "\n")[3:] {
		if n := len([]rune(line)); n > 80 {
			t.Errorf("%d characters, want at most 80: %q", n, line)
		}
	}
}

// TestScreen_EndsAsTheTimeline: what a terminal shows after all updates is the timeline of the whole
// run, and earlier rows stay.
func TestScreen_EndsAsTheTimeline(t *testing.T) {
	var out bytes.Buffer
	s := demo.Screen{W: &out, Terminal: true}
	whole := sample()
	whole.Columns = append(whole.Columns, sample().Columns...)
	whole.Seconds = 9.1
	for n := 1; n <= len(whole.Columns); n++ {
		part := *whole
		part.Columns, part.Seconds, part.Kills = whole.Columns[:n], float64(n)/20, nil
		for _, k := range whole.Kills {
			if k.AtS < part.Seconds {
				part.Kills = append(part.Kills, k)
			}
		}
		s.Show(&part)
	}
	s.End(whole)
	got := terminal(t, out.String())
	if want := whole.Timeline(false); got != want {
		t.Errorf("the terminal shows\n%s\nwant\n%s", got, want)
	}
	if !strings.HasSuffix(out.String(), "\x1b[?25h") {
		t.Error("the cursor stays hidden")
	}
}

// terminal returns what a terminal shows after the output of a Screen.
func terminal(t *testing.T, output string) string {
	t.Helper()
	var lines []string
	at := 0
	for _, part := range strings.SplitAfter(output, "\n") {
		for strings.HasPrefix(part, "\x1b[") {
			var sequence string
			end := strings.IndexAny(part, "ABCDEFGHJKlhm")
			sequence, part = part[2:end+1], part[end+1:]
			if up, ok := strings.CutSuffix(sequence, "A"); ok {
				n := 0
				for _, digit := range up {
					n = 10*n + int(digit-'0')
				}
				at -= n
			}
		}
		text, complete := strings.CutSuffix(part, "\n")
		if !complete {
			continue
		}
		for len(lines) <= at {
			lines = append(lines, "")
		}
		lines[at] = strings.TrimSuffix(text, "\x1b[K")
		at++
	}
	return strings.Join(lines, "\n") + "\n"
}

func TestScreen_WritesALineForEachKillWithoutATerminal(t *testing.T) {
	var out bytes.Buffer
	s := demo.Screen{W: &out}
	r := sample()
	open := *r
	open.Kills = []demo.Kill{r.Kills[0], {AtS: 4.23, Node: 2, GapMS: 20}}
	s.Show(&open)
	s.Show(&open)
	s.End(r)
	golden(t, "plain.txt", out.String())
}

// TestPicture_SaysWhenAGapIsOutsideOfItsPanel: the longest silence after a kill may be that of the node
// that starts again.
func TestPicture_SaysWhenAGapIsOutsideOfItsPanel(t *testing.T) {
	r := sample()
	r.Kills = r.Kills[:1]
	r.Kills[0].GapMS, r.Kills[0].GapAtS = 22, 2.3
	if svg := r.Picture(); !strings.Contains(svg, "✗ 22 ms, 0.8 s later") {
		t.Errorf("the panel does not say so:\n%s", svg)
	}
}

func TestPicture_IsXMLForAllResults(t *testing.T) {
	violated := sample()
	violated.Violations, violated.Violation, violated.How = 1, "a < b", demo.HowStop
	quiet := sample()
	quiet.Kills = nil
	golden(t, "picture.svg", sample().Picture())
	for _, r := range []*demo.Result{sample(), violated, quiet, {ColumnMS: 50, Columns: []demo.Column{{}}}} {
		d := xml.NewDecoder(strings.NewReader(r.Picture()))
		for {
			if _, err := d.Token(); errors.Is(err, io.EOF) {
				break
			} else if err != nil {
				t.Fatalf("%v in\n%s", err, r.Picture())
			}
		}
	}
}

func TestReadResult_ReadsWhatWasWritten(t *testing.T) {
	var b bytes.Buffer
	if err := sample().WriteJSON(&b); err != nil {
		t.Fatal(err)
	}
	text := b.String()
	r, err := demo.ReadResult(&b)
	if err != nil || r.Timeline(false) != sample().Timeline(false) || r.Summary() != sample().Summary() || r.Picture() != sample().Picture() {
		t.Errorf("%v; %+v", err, r)
	}
	for _, bad := range []string{
		"", "{}", `{"column_ms": 50}`, strings.Replace(text, `"column_ms": 50`, `"column_ms": 7`, 1),
		strings.Replace(text, `"nodes": 3`, `"nodes": 9000000000000000000`, 1),
		strings.Replace(text, `"around_ms": 20`, `"around_ms": -1000`, 1), strings.Replace(text, `"around_ms": 20`, `"around_ms": 21`, 1),
		strings.Replace(text, `"at_s": 1.5`, `"at_s": 15`, 1), strings.Replace(text, `"failed": 0`, `"failed": 3`, 1),
	} {
		if _, err := demo.ReadResult(strings.NewReader(bad)); !errors.Is(err, isotone.ErrInvalidArgument) {
			t.Errorf("%.60q: %v", bad, err)
		}
	}
}

// FuzzReadResult: what is accepted can be drawn.
func FuzzReadResult(f *testing.F) {
	var b bytes.Buffer
	if err := sample().WriteJSON(&b); err != nil {
		f.Fatal(err)
	}
	f.Add(b.Bytes())
	f.Add([]byte(`{"nodes":3,"column_ms":50,"columns":[{"answers":1}],"kills":[{"at_s":0,"gap_at_s":10,"around":[1],"around_ms":20}]}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		r, err := demo.ReadResult(bytes.NewReader(text))
		if err != nil {
			return
		}
		if r.Timeline(true) == "" || r.Summary() == "" || r.Picture() == "" {
			t.Error("it draws nothing")
		}
	})
}

func TestResult_ErrNamesViolationsAndFailures(t *testing.T) {
	r := sample()
	if err := r.Err(); err != nil {
		t.Error(err)
	}
	r.Failed, r.Failures = 2, []string{"no leader"}
	if err := r.Err(); err == nil || !strings.Contains(err.Error(), "2 calls failed; the first: no leader") {
		t.Error(err)
	}
	r.Violations, r.Violation = 1, "two are equal"
	if err := r.Err(); err == nil || !strings.Contains(err.Error(), "two are equal") || !strings.Contains(r.Summary(), "1 VIOLATIONS") {
		t.Error(err)
	}
	if err := (&demo.Result{}).Err(); err == nil {
		t.Error("a run without answers passes")
	}
}

func TestOptions_ListAllFaults(t *testing.T) {
	o := demo.Default()
	o.Command = []string{"isotone"}
	if err := o.Validate(); err != nil {
		t.Error(err)
	}
	o.Kills, o.Every, o.Clients, o.How, o.Duration = 101, time.Millisecond, 0, "melt", time.Hour
	err := o.Validate()
	if !errors.Is(err, isotone.ErrInvalidArgument) {
		t.Fatal(err)
	}
	for _, want := range []string{"--kills 101", "--every 1ms", "--clients 0", `--how "melt"`, "--duration 1h0m0s"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q is missing in: %v", want, err)
		}
	}
	o = demo.Default()
	o.Command, o.Kills, o.Every = []string{"isotone"}, 100, time.Minute
	if err := o.Validate(); err == nil || !strings.Contains(err.Error(), "1h40m0s in all") {
		t.Error(err)
	}
	o.Kills = 0
	if err := o.Validate(); err == nil || !strings.Contains(err.Error(), "want a --duration") {
		t.Error(err)
	}
}
