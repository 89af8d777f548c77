package report_test

import (
	"bytes"
	"encoding/xml"
	"errors"
	"flag"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/check/bench"
	"github.com/isotone/isotone/internal/check/verify"
	"github.com/isotone/isotone/internal/check/verify/report"
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

// page returns the page about a result.
func page(t testing.TB, r *verify.Result) string {
	t.Helper()
	var b bytes.Buffer
	if err := report.HTML(&b, r); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

var styleSheet = regexp.MustCompile(`(?s)<style>.*?</style>`)

func TestReport_OfSamples(t *testing.T) {
	for name, r := range results() {
		golden(t, name+".html", styleSheet.ReplaceAllString(page(t, r), "<style></style>"))
		golden(t, name+".txt", report.Summary(r))
	}
}

// elements returns how often each element is in a page, which must be well-formed XML.
func elements(t *testing.T, page string) map[string]int {
	t.Helper()
	found := map[string]int{}
	d := xml.NewDecoder(strings.NewReader(page))
	for {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			return found
		} else if err != nil {
			t.Fatalf("%v in\n%s", err, page)
		}
		if e, ok := token.(xml.StartElement); ok {
			found[e.Name.Local]++
		}
	}
}

func TestHTML_IsOneWellFormedFileWithoutScript(t *testing.T) {
	samples := results()
	samples["minute"], samples["long"] = noisy(1, time.Minute), hundred(5*time.Minute)
	for name, r := range samples {
		page := page(t, r)
		found := elements(t, page)
		for _, no := range []string{"script", "img", "link", "iframe", "object"} {
			if n := found[no]; n > 0 {
				t.Errorf("%s: it has %d elements %q", name, n, no)
			}
		}
		for _, pattern := range []string{`https?://`, `@import`, `url\(`, `javascript:`, `\son[a-z]+="`, `NaN|Inf|%!`} {
			if found := regexp.MustCompile(pattern).FindString(page); found != "" {
				t.Errorf("%s: the page has %q", name, found)
			}
		}
	}
}

func TestReport_ShowsForeignTextsAsTheyAre(t *testing.T) {
	r := broken()
	for form, text := range map[string]string{"page": page(t, r), "summary": report.Summary(r)} {
		for _, bad := range []string{"\x1b", "\x00", "\u202e", "\r", "\xff"} {
			if strings.Contains(text, bad) {
				t.Errorf("the %s has %q", form, bad)
			}
		}
	}
	r.Errors[0].Message = strings.Repeat("é", 1<<20)
	if n := len(report.Summary(r)); n > 1<<14 {
		t.Errorf("a summary of %d bytes", n)
	}
	if r.Nodes[2] != broken().Nodes[2] {
		t.Error("the result itself was changed")
	}
}

// pageMax is what a page of a long run has at most, in bytes.
const pageMax = 2_000_000

func TestHTML_OfALongRunStaysSmall(t *testing.T) {
	for _, length := range []time.Duration{3 * time.Hour, 12 * time.Hour} {
		r := hundred(length)
		page := page(t, r)
		if len(page) > pageMax {
			t.Errorf("%v: %d bytes, want at most %d", length, len(page), pageMax)
		}
		for _, want := range []string{"97 more", "The run in 12 parts", fmt.Sprintf("The 500 of %s faults with the longest silences", bench.Group(len(r.Faults)))} {
			if !strings.Contains(page, want) {
				t.Errorf("%v: the page lacks %q", length, want)
			}
		}
		if n := strings.Count(page, `class="worst"`); n != 1 {
			t.Errorf("%v: %d faults are marked as the worst", length, n)
		}
	}
}

func TestSummary_SaysWhatHeld(t *testing.T) {
	promise := func(strongest verify.Order) func(*verify.Result) {
		return func(r *verify.Result) {
			for i, order := range verify.Orders {
				r.Verdicts[i].Promised = slices.Index(verify.Orders, order) <= slices.Index(verify.Orders, strongest)
			}
		}
	}
	for name, c := range map[string]struct {
		change func(*verify.Result)
		want   string
	}{
		"all":          {func(*verify.Result) {}, "Real-time order held: 119 700 answers of 3 nodes, 2 faults, none out of order."},
		"more":         {promise(verify.Unique), "Uniqueness held: 119 700 answers of 3 nodes, 2 faults, no number handed out twice. Even real-time order held, which isotone does not promise."},
		"nothing":      {promise(""), "Real-time order held: 119 700 answers of 3 nodes, 2 faults, none out of order. isotone promises no order."},
		"no answer":    {func(r *verify.Result) { r.Answers = 0 }, "No verdict: no call was answered."},
		"malformed":    {func(r *verify.Result) { r.Malformed = 1 }, "BROKEN: 1 answer had no number."},
		"broken":       {func(r *verify.Result) { r.Verdicts[1].Violations = 1 }, "BROKEN: isotone promises real-time order, which was violated by 1 of 119 700 answers."},
		"not verified": {func(r *verify.Result) { r.Verdicts[0].Unverified = 7 }, "none out of order as far as verified (7 not)."},
		"one client":   {func(r *verify.Result) { r.Clients = 1 }, "There was one client."},
		"neither": {func(r *verify.Result) {
			promise("")(r)
			r.Verdicts[0].Violations = 2
		}, "No order held. isotone promises no order."},
		"not what is not promised": {func(r *verify.Result) {
			promise(verify.PerClient)(r)
			r.Verdicts[2].Violations = 2
		}, "Order for each client held: 119 700 answers of 3 nodes, 2 faults, none out of order.\n"},
		"numbers of the same length": {numbers("340282366920938463374607431768211240", "340282366920938463374607431768211250"), "…4607431768211240 after …4607431768211250."},
		"of different lengths":       {numbers("99999999999999999998", "100000000000000000001"), "99999999999999999998 after 100000000000000000001."},
		"short numbers":              {numbers("7", "12"), "7 after 12."},
		"command":                    {func(r *verify.Result) { r.Command = []string{"isotone", "it's", ""} }, `isotone 'it'\''s' ''`},
	} {
		r := good()
		if c.change(r); !strings.Contains(report.Summary(r), c.want) {
			t.Errorf("%s: %q is missing in\n%s", name, c.want, report.Summary(r))
		}
	}
}

// numbers returns a change of a result after which a number came that is smaller than an earlier one.
func numbers(later, earlier string) func(*verify.Result) {
	return func(r *verify.Result) {
		r.Anomalies = broken().Anomalies[:1]
		r.Anomalies[0].Later.First, r.Anomalies[0].Earlier.First = later, earlier
	}
}

// TestHTML_KeepsExtremesOfMergedColumns: a silence of one column is marked, and the largest latencies remain, however
// many columns are merged.
func TestHTML_KeepsExtremesOfMergedColumns(t *testing.T) {
	r := good()
	r.ColumnMS, r.Seconds, r.Faults, r.Columns = 100, 1100, nil, make([]verify.Column, 11_000)
	for i := range r.Columns {
		r.Columns[i] = verify.Column{Answers: 10, P50MS: 1, P99MS: 2, MaxMS: 3}
	}
	r.Columns[5000] = verify.Column{}
	r.Columns[7000].MaxMS = 4321
	page := page(t, r)
	chart, _, _ := strings.Cut(page[strings.Index(page, "<svg class=\"chart desk\""):], "</svg>")
	if n := strings.Count(regexp.MustCompile(`<path class="red" d="[^"]*"`).FindString(chart), "M"); n != 1 {
		t.Errorf("%d silences are marked, want 1", n)
	}
	if n := strings.Count(chart, "max 4.32 s"); n != 1 {
		t.Errorf("the largest latency is in %d columns, want 1", n)
	}
}

// TestHTML_DrawsWhatNoDriverShouldReport: a defect of a driver or of the checker costs figures, not the report.
func TestHTML_DrawsWhatNoDriverShouldReport(t *testing.T) {
	r := broken()
	r.Faults[0].Nodes = []int{-1, 99}
	r.Faults[1].EndS = r.Faults[1].AtS - 3
	r.Anomalies[0].Later.Node, r.Anomalies[0].Later.First = 77, "no number"
	r.Anomalies[1].Later = verify.Call{}
	r.Columns[0].P99MS, r.Columns[1].MaxMS = math.Inf(1), -3
	r.Columns[2].P50MS = math.NaN()
	r.Verdicts = r.Verdicts[:1]
	elements(t, page(t, r))
	if text := report.Summary(r); !strings.Contains(text, "node 99") {
		t.Errorf("node 99 is missing in\n%s", text)
	}
	r.ColumnMS = 0
	elements(t, page(t, r))
}

func TestRead_ReadsWhatWasWritten(t *testing.T) {
	for name, r := range results() {
		if name == "empty" {
			continue
		}
		var b bytes.Buffer
		if err := r.WriteJSON(&b); err != nil {
			t.Fatal(err)
		}
		text := b.String()
		got, err := report.Read(&b)
		if err != nil || page(t, got) != page(t, r) || report.Summary(got) != report.Summary(r) {
			t.Errorf("%s: %v\n%s", name, err, text)
		}
	}
}

func TestRead_RefusesWhatCannotBeShown(t *testing.T) {
	for want, change := range map[string]func(*verify.Result){
		"nodes has 0":                    func(r *verify.Result) { r.Nodes = nil },
		"verdicts has 2":                 func(r *verify.Result) { r.Verdicts = r.Verdicts[1:] },
		`verdict 1 is of order "client"`: func(r *verify.Result) { r.Verdicts[0].Order = verify.PerClient },
		"anomalies has 104":              func(r *verify.Result) { r.Anomalies = append(r.Anomalies, make([]verify.Anomaly, 100)...) },
		`anomaly 1 is of order ""`:       func(r *verify.Result) { r.Anomalies[0].Order = "" },
		`anomaly 2 has the number "-5"`:  func(r *verify.Result) { r.Anomalies[1].Later.First = "-5" },
		"anomaly 1 has a call of node 3": func(r *verify.Result) { r.Anomalies[0].Earlier.Node = 3 },
		"anomaly 3 has a time of -1 s":   func(r *verify.Result) { r.Anomalies[2].Earlier.BeganS = -1 },
		"errors has 21":                  func(r *verify.Result) { r.Errors = make([]verify.ErrorCount, 21) },
		"column_ms is 0":                 func(r *verify.Result) { r.ColumnMS = 0 },
		"its columns end after 3.6e+08":  func(r *verify.Result) { r.ColumnMS, r.Columns = 3_600_000, make([]verify.Column, 100_000) },
		"it has a time of 1e+97 s":       func(r *verify.Result) { r.Columns[3].MaxMS = 1e100 },
		"cpus are 16, 4 and -1":          func(r *verify.Result) { r.CPUs = -1 },
		"fault 2 hits node 3 of 3":       func(r *verify.Result) { r.Faults[1].Nodes[0] = 3 },
		"fault 1 lasts from 1.52 s to 1": func(r *verify.Result) { r.Faults[0].EndS = 1 },
	} {
		r := broken()
		change(r)
		var b bytes.Buffer
		if err := r.WriteJSON(&b); err != nil {
			t.Fatal(err)
		}
		if _, err := report.Read(&b); !errors.Is(err, isotone.ErrInvalidArgument) || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
	for _, bad := range []string{"", "{}", "[]", "hello"} {
		if _, err := report.Read(strings.NewReader(bad)); !errors.Is(err, isotone.ErrInvalidArgument) {
			t.Errorf("%q: %v", bad, err)
		}
	}
}

// FuzzRead: what is accepted can be shown.
func FuzzRead(f *testing.F) {
	for _, r := range results() {
		var b bytes.Buffer
		if err := r.WriteJSON(&b); err != nil {
			f.Fatal(err)
		}
		f.Add(b.Bytes())
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		r, err := report.Read(bytes.NewReader(text))
		if err != nil {
			return
		}
		d := xml.NewDecoder(strings.NewReader(page(t, r)))
		for err == nil {
			_, err = d.Token()
		}
		if !errors.Is(err, io.EOF) {
			t.Errorf("the page: %v", err)
		}
		if summary := report.Summary(r); summary == "" || strings.ContainsRune(summary, '\x1b') {
			t.Errorf("the summary: %q", summary)
		}
		screen := report.Screen{W: io.Discard, Terminal: true}
		screen.Show(&verify.Result{Seconds: -1})
		screen.Show(r)
	})
}
