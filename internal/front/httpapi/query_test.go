package httpapi

import (
	"errors"
	"net/url"
	"strings"
	"testing"

	"github.com/isotone/isotone"
)

func TestParseQuery_Good(t *testing.T) {
	for raw, want := range map[string]Query{
		"":                           {Count: 1},
		"&&":                         {Count: 1},
		"n=1":                        {Count: 1},
		"n=65536":                    {Count: 65536},
		"%6E=%31%32":                 {Count: 12},
		"n=4294967296&format=range":  {Count: 1 << 32, Format: Range, Named: true},
		"format=range&n=4294967296":  {Count: 1 << 32, Format: Range, Named: true},
		"mode=lease&format=json&n=7": {Count: 7, Format: JSON, Named: true, Mode: isotone.ReadLease},
		"floor=0123456789abcdefFEDCBA9876543210&n=2": {Count: 2, Floor: isotone.Timestamp{Time: 0x0123456789abcdef, Index: 0xfedcba9876543210}},
		"format=u64&n=65536":                         {Count: 65536, Format: U64, Named: true},
		"floor=12345678901234567":                    {Count: 1, Floor: isotone.Timestamp64(12345678901234567).Timestamp()},
		"mode=quorum":                                {Count: 1, Mode: isotone.ReadQuorum},
		"N=5&Format=x&x=1&x=2&x&y=a+b":               {Count: 1},
	} {
		if got, err := ParseQuery(raw); err != nil || got != want {
			t.Errorf("%q: %+v, %v, want %+v", raw, got, err, want)
		}
	}
}

func TestQuery_AcceptingYieldsToTheQuery(t *testing.T) {
	for raw, want := range map[string]Format{"": JSON, "n=5": JSON, "format=range": Range, "format=json": JSON, "format=u64": U64JSON} {
		q, err := ParseQuery(raw)
		if err != nil {
			t.Fatal(err)
		}
		if got := q.Accepting("application/json").Format; got != want {
			t.Errorf("%q: %d", raw, got)
		}
		if got := q.Accepting(); got != q {
			t.Errorf("%q without Accept: %+v", raw, got)
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
	for _, seed := range []string{"", "n=5", "n=+1", "n=1&n=2", "floor=0123456789abcdef0123456789abcdef", "floor=", "%6e=3&mode=lease", "format=range&n=4294967296", "a;b", "%", "n=%"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, raw string) {
		q, err := ParseQuery(raw)
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
		if q.Count < 1 || q.Count > isotone.RangeCountMax || q.Format != Range && q.Count > CountMax {
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
