package stats_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/isotone/isotone/internal/front/stats"
)

// TestReport_RateIsThatOfTheTrueSpan, however short that is, and is not told where there
// is none.
func TestReport_RateIsThatOfTheTrueSpan(t *testing.T) {
	logOf := func(requests int, every time.Duration) string {
		var log strings.Builder
		for i := range requests {
			log.WriteString(logged(fmt.Sprint(i), "/", "ok", time.Duration(i)*every, time.Millisecond, 0, 0))
		}
		return log.String()
	}
	for _, tt := range []struct {
		log, text, tile string
		rate            float64
	}{
		{logOf(94, 107*time.Millisecond/93), "94 requests in 107 ms, 879/s, 0 errors", ">879<", 878.5},
		{logOf(1, 0), ": 1 request, 0 errors", "", 0},
		{logOf(3, 0), ": 3 requests, 0 errors", "", 0},
		{logOf(30, 500*time.Millisecond), "30 requests in 14.5 s, 2/s, 0 errors", ">2<", 30 / 14.5},
	} {
		r := readLogs(t, stats.ReadOptions{}, tt.log)
		if math.Abs(r.Total.Rate-tt.rate) > tt.rate/1000 || r.Total.RatePeak < tt.rate || tt.rate == 0 && r.Total.RatePeak != 0 {
			t.Errorf("%s: rate %v, peak %v", tt.text, r.Total.Rate, r.Total.RatePeak)
		}
		var text, page bytes.Buffer
		if err := errors.Join(r.WriteText(&text), r.WriteHTML(&page)); err != nil {
			t.Fatal(err)
		}
		object, err := json.Marshal(r.Total)
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(text.String(), tt.text) {
			t.Errorf("want %q:\n%s", tt.text, &text)
		}
		if told := strings.Contains(page.String(), "requests a second"); told != (tt.rate > 0) || !strings.Contains(page.String(), tt.tile) {
			t.Errorf("%s: the page tells a rate: %v", tt.text, told)
		}
		if told := strings.Contains(string(object), `"rate":`); told != (tt.rate > 0) {
			t.Errorf("%s: the JSON tells a rate: %v", tt.text, told)
		}
	}
}

func TestReport_HTMLLoadsNothingAndEscapes(t *testing.T) {
	var log strings.Builder
	for i := range 100 {
		log.WriteString(logged(fmt.Sprint(i), "/<script>alert(1)</script>", "ok", time.Duration(i)*time.Second, time.Duration(i+1)*time.Millisecond, time.Millisecond, 0))
	}
	for name, r := range map[string]*stats.Report{
		"one":    readLogs(t, stats.ReadOptions{Top: 5, By: "path"}, log.String()),
		"joined": readLogs(t, stats.ReadOptions{Top: 5}, log.String(), log.String()),
		"none":   readLogs(t, stats.ReadOptions{}, ""),
		"tiny":   readLogs(t, stats.ReadOptions{}, logged("x", "/", "ok", 0, 0, 0, 0)),
	} {
		var page bytes.Buffer
		if err := r.WriteHTML(&page); err != nil {
			t.Fatal(name, err)
		}
		text := page.String()
		for _, bad := range []string{"<script", "http://", "https://", "NaN", "Inf", "ZgotmplZ", "src="} {
			if strings.Contains(text, bad) {
				t.Errorf("%s: the page has %q", name, bad)
			}
		}
		if name == "one" && (!strings.Contains(text, "such requests in flight") || strings.Count(text, "<polyline") != 5 || !strings.Contains(text, "By path")) {
			t.Errorf("%s: something is missing:\n%s", name, text)
		}
		if name == "joined" && !strings.Contains(text, "100 requests in both a and b") {
			t.Errorf("%s: no join", name)
		}
	}
}

func TestReport_IsReadableForMachines(t *testing.T) {
	r := readLogs(t, stats.ReadOptions{Top: 1}, logged("x", "/", "ok", 0, 4000, 1000, 1000))
	b, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	var back struct {
		Total struct {
			Requests int
			Wall     struct{ Mean int }
			Capacity struct{ WorkersPerCore float64 }
		}
	}
	if err := json.Unmarshal(b, &back); err != nil || back.Total.Requests != 1 || back.Total.Wall.Mean != 4000 || back.Total.Capacity.WorkersPerCore != 2 {
		t.Errorf("%v, %+v\n%s", err, back, b)
	}
}
