package live_test

import (
	"strings"
	"testing"

	"github.com/isotone/isotone/internal/live"
)

func TestAcceptsGzip(t *testing.T) {
	for line, want := range map[string]bool{
		"":                              false,
		"gzip":                          true,
		"GZip":                          true,
		"x-gzip":                        true,
		"gzip, deflate, br, zstd":       true,
		"br;q=1.0, gzip;q=0.8, *;q=0.1": true,
		" ,, deflate ,\tgzip ; q=0.5\t": true,
		"gzip;Q=1":                      true,
		"gzip;q=0":                      false,
		"gzip;q=0.000":                  false,
		"gzip;q=0.001":                  true,
		"gzip;q=0.":                     false,
		"gzip;q=1.":                     true,
		"gzip;q=1.000":                  true,
		"gzip;q=1.001":                  false,
		"gzip;q=0.1234":                 false,
		"gzip;q=2":                      false,
		"gzip;q=":                       false,
		"gzip;q=.5":                     false,
		"gzip;q=-1":                     false,
		"gzip;q=0.5;x=1":                false,
		"gzip;x=1":                      false,
		"gzip;":                         false,
		"*":                             true,
		"*;q=0":                         false,
		"gzip;q=0, *":                   false,
		"identity;q=0, *":               true,
		"identity":                      false,
		"identity, gzip;q=0.5":          false,
		"identity;q=0.5, gzip;q=0.5":    true,
		"identity;q=0":                  false,
		"deflate, br":                   false,
		"gzipx":                         false,
		"gzip deflate":                  false,
	} {
		if got := live.AcceptsGzip(line); got != want {
			t.Errorf("%q: %v", line, got)
		}
	}
	if live.AcceptsGzip() || !live.AcceptsGzip("br", "gzip") || live.AcceptsGzip("gzip;q=0.2", "identity") {
		t.Error("several lines are not one list")
	}
}

func TestMatchesTag(t *testing.T) {
	const tag = `"a1"`
	for field, want := range map[string]bool{
		`"a1"`:              true,
		`W/"a1"`:            true,
		"*":                 true,
		" * ":               true,
		`"b", "a1"`:         true,
		`"b",,W/"c" , "a1"`: true,
		`,"a1",`:            true,
		`"a,1", "a1"`:       true,
		`"", "a1"`:          true,
		"\t\"a1\"":          true,
		"":                  false,
		",":                 false,
		`"b"`:               false,
		`a1`:                false,
		`"a1`:               false,
		`a1"`:               false,
		`"A1"`:              false,
		`w/"a1"`:            false,
		`"b" "a1"`:          false,
		`b, "a1"`:           false,
		`*, "a1"`:           false,
		`"b", *`:            false,
		`"a 1", "a1"`:       false,
		`W/W/"a1"`:          false,
		`W/`:                false,
	} {
		if got := live.MatchesTag(field, tag); got != want {
			t.Errorf("%q: %v", field, got)
		}
	}
}

func FuzzAcceptsGzip(f *testing.F) {
	for _, line := range []string{"gzip", "gzip;q=0.5, identity", "*;q=0,gzip;q=1.000", ";;q=,,"} {
		f.Add(line)
	}
	f.Fuzz(func(t *testing.T, line string) {
		got := live.AcceptsGzip(line)
		lower := strings.ToLower(line)
		if got && !strings.Contains(lower, "gzip") && !strings.Contains(lower, "*") {
			t.Fatalf("%q", line)
		}
		// A list may be spread over lines.
		if split := live.AcceptsGzip(strings.Split(line, ",")...); split != got {
			t.Fatalf("%q: %v, as lines %v", line, got, split)
		}
		// What is refused by name stays refused.
		if live.AcceptsGzip("gzip;q=0, *, " + "br") {
			t.Fatal("refused gzip")
		}
		if w := live.ParseWeight(line); w < 0 || w > 1000 {
			t.Fatalf("%q: %d", line, w)
		}
	})
}

func FuzzMatchesTag(f *testing.F) {
	f.Add(`"a"`, "a")
	f.Add(`W/"x", "a,b"`, "a,b")
	f.Add(`*`, "")
	f.Fuzz(func(t *testing.T, field, opaque string) {
		tag := `"` + opaque + `"`
		got := live.MatchesTag(field, tag)
		if got && !strings.Contains(field, tag) && strings.Trim(field, " \t") != "*" {
			t.Fatalf("%q names %q", field, tag)
		}
		if strings.Trim(opaque, "abcdefghijklmnopqrstuvwxyz,/-W") == "" {
			for _, list := range []string{tag, "W/" + tag, `"q", ` + tag, tag + "," + field} {
				if !live.MatchesTag(list, tag) {
					t.Fatalf("%q does not name %q", list, tag)
				}
			}
		}
	})
}
