package svg_test

import (
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/isotone/isotone/internal/check/svg"
)

func TestAxis_LaysValuesBetweenItsEnds(t *testing.T) {
	linear := svg.Axis{Left: 100, Right: 200, From: -10, To: 40}
	log := svg.Axis{Left: 100, Right: 200, From: 1, To: 100, Log: true}
	for _, c := range []struct {
		axis     svg.Axis
		at, want float64
	}{
		{linear, -10, 100}, {linear, 15, 150}, {linear, 40, 200}, {linear, -11, 100}, {linear, 41, 200},
		{log, 1, 100}, {log, 10, 150}, {log, 100, 200}, {log, 0, 100}, {log, 1000, 200},
	} {
		if got := c.axis.At(c.at); got != c.want {
			t.Errorf("%v of %+v lies at %v, want %v", c.at, c.axis, got, c.want)
		}
	}
}

func TestTicks_AreRound(t *testing.T) {
	for _, c := range []struct {
		from, to float64
		most     int
		want     []float64
	}{
		{0, 60, 15, []float64{0, 5, 10, 15, 20, 25, 30, 35, 40, 45, 50, 55, 60}},
		{0, 60, 4, []float64{0, 20, 40, 60}},
		{10, 15, 6, []float64{10, 11, 12, 13, 14, 15}},
		{13, 99, 3, []float64{50}},
		{1.24, 1.25, 3, []float64{1.24, 1.245, 1.25}},
		{3, 3, 5, nil},
		{4, 3, 5, nil},
		{math.NaN(), 3, 5, nil},
	} {
		got := svg.Ticks(c.from, c.to, c.most)
		same := slices.EqualFunc(got, c.want, func(a, b float64) bool { return math.Abs(a-b) < 1e-9 })
		if !same {
			t.Errorf("from %v to %v, at most %d: %v, want %v", c.from, c.to, c.most, got, c.want)
		}
	}
}

func TestTop_IsRoundAndNotBelow(t *testing.T) {
	for _, c := range [][2]float64{{-1, 1}, {0, 1}, {0.3, 1}, {1, 1}, {1.1, 2}, {11, 12}, {160, 200}, {900, 1000}} {
		if got := svg.Top(c[0]); got != c[1] {
			t.Errorf("the top of %v is %v, want %v", c[0], got, c[1])
		}
	}
}

func TestPicture_EscapesTexts(t *testing.T) {
	var p svg.Picture
	p.Text("", "start", 1, 2.345, "a < b & c")
	got := p.SVG(10, 20, `"quoted"`, "")
	for _, want := range []string{`x="1" y="2.3" text-anchor="start">a &lt; b &amp; c</text>`, `viewBox="0 0 10 20"`, `aria-label="&#34;quoted&#34;"`} {
		if !strings.Contains(got, want) {
			t.Errorf("%s is missing in %s", want, got)
		}
	}
}
