package web

import (
	"errors"
	"net/url"
	"strings"
	"testing"

	"github.com/isotone/isotone"
)

func TestParseQuery_Good(t *testing.T) {
	for raw, want := range map[string]query{
		"":                             {count: 1},
		"&&":                           {count: 1},
		"n=1":                          {count: 1},
		"n=65536":                      {count: 65536},
		"%6E=%31%32":                   {count: 12},
		"n=4294967296&format=range":    {count: 1 << 32, format: formatRange},
		"format=range&n=4294967296":    {count: 1 << 32, format: formatRange},
		"mode=lease&format=json&n=7":   {count: 7, format: formatJSON, mode: isotone.ReadLease},
		"mode=quorum":                  {count: 1, mode: isotone.ReadQuorum},
		"N=5&Format=x&x=1&x=2&x&y=a+b": {count: 1},
	} {
		if got, err := parseQuery(raw, nil); err != nil || got != want {
			t.Errorf("%q: %+v, %v, want %+v", raw, got, err, want)
		}
	}
}

func TestAcceptsJSON(t *testing.T) {
	for accept, want := range map[string]bool{
		"application/json":                                     true,
		"APPLICATION/JSON ; charset=utf-8":                     true,
		"text/html, application/json;q=0.1":                    true,
		"application/json;q=0":                                 false,
		"application/json;q=nonsense":                          false,
		"application/json;q=NaN":                               false,
		"application/json;q=7":                                 false,
		"application/json, application/octet-stream":           false,
		"application/json, application/octet-stream;q=0.5":     true,
		"application/json;q=0.4, application/octet-stream;q=1": false,
		"*/*":                   false,
		"application/*":         false,
		"application/json5":     false,
		"":                      false,
		",;,":                   false,
		"text/application/json": false,
	} {
		if got := acceptsJSON([]string{accept}); got != want {
			t.Errorf("%q: %v", accept, got)
		}
	}
	if !acceptsJSON([]string{"text/html", "application/json"}) {
		t.Error("the second line is not read")
	}
}

// FuzzParseQuery holds the parser against net/url: what it takes, net/url reads
// the same way, and what it takes is in range.
func FuzzParseQuery(f *testing.F) {
	for _, seed := range []string{"", "n=5", "n=+1", "n=1&n=2", "%6e=3&mode=lease", "format=range&n=4294967296", "a;b", "%", "n=%"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, raw string) {
		q, err := parseQuery(raw, nil)
		if err != nil {
			if !errors.Is(err, isotone.ErrInvalidArgument) {
				t.Fatalf("%q: %v is outside the vocabulary", raw, err)
			}
			return
		}
		values, err := url.ParseQuery(raw)
		if err != nil {
			t.Fatalf("%q: taken, but net/url says %v", raw, err)
		}
		if q.count < 1 || q.count > isotone.RangeCountMax || q.format != formatRange && q.count > countMax {
			t.Fatalf("%q: %+v", raw, q)
		}
		if n, ok := values["n"]; ok && (len(n) != 1 || strings.TrimLeft(n[0], "0123456789") != "") {
			t.Fatalf("%q: n is %q to net/url", raw, n)
		}
		if len(values["format"]) > 1 || len(values["mode"]) > 1 {
			t.Fatalf("%q: duplicates", raw)
		}
	})
}
