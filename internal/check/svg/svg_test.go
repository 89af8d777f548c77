package svg_test

import (
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
