package resp

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/isotone/isotone"
)

// TestOracle_EachCommandIsARequestOfItsOwn, whatever comes before or behind it.
func TestOracle_EachCommandIsARequestOfItsOwn(t *testing.T) {
	for say, want := range map[string]struct {
		asks []string
		out  string
	}{
		"ORACLE a WRITE\r\n":                                                                   {[]string{"a write 0"}, ":1000\r\n"},
		"oracle a peek lease\r\nORACLE b READ QUORUM\r\n":                                      {[]string{"a peek 0 lease", "b read 0 quorum"}, ":2000\r\n:3000\r\n"},
		"ORACLE a APPLY 77 LEASE TRACEPARENT " + traceparent + "\r\n":                          {[]string{"a apply 77 lease"}, ":4077\r\n"},
		"ORACLE a WRITE\r\nORACLE a WRITE\r\nTSIN a\r\nTSIN a\r\nORACLE a APPLY 5\r\n" + plain: {[]string{"a write 0", "a write 0", "a issue 0", "a apply 5", " issue 0"}, ":1000\r\n:1000\r\n" + stamp(2) + stamp(3) + ":4005\r\n" + stamp(5)},
		"ORACLE a READ TRACEPARENT " + traceparent + "\r\n":                                    {[]string{"a read 0"}, ":3000\r\n"},
		"MULTI\r\nORACLE a WRITE\r\nORACLE a READ\r\nEXEC\r\n":                                 {[]string{"a write 0", "a read 0"}, "+OK\r\n+QUEUED\r\n+QUEUED\r\n*2\r\n:1000\r\n:3000\r\n"},
		"ORACLE\r\n":                      {nil, "-ERR wrong number of arguments for 'oracle'"},
		"ORACLE a\r\n":                    {nil, "-ERR wrong number of arguments for 'oracle'"},
		"ORACLE a WRITE LEASE x\r\n":      {nil, "-ERR wrong number of arguments for 'oracle'"},
		"ORACLE a{b} WRITE\r\n":           {nil, "-ERR timeline: "},
		"ORACLE a ISSUE\r\n":              {nil, "-ERR operation "},
		"ORACLE a WRITE 5\r\n":            {nil, "-ERR mode "},
		"ORACLE a APPLY\r\n":              {nil, "-ERR apply has a time"},
		"ORACLE a APPLY LEASE\r\n":        {nil, "-ERR time "},
		"ORACLE a APPLY -1\r\n":           {nil, "-ERR time "},
		"ORACLE a READ TRACEPARENT x\r\n": {nil, "-ERR traceparent "},
		"ORACLES a READ\r\n":              {nil, "-ERR unknown command"},
	} {
		o := newOracle()
		w := newTape(t, New(Config{Backend: o}))
		w.feed([]byte(say))
		out := w.finish(o)
		var asks []string
		for _, b := range o.batches {
			ask := fmt.Sprintf("%s %v %d", b.Timeline, b.Op, b.At)
			if b.Mode != isotone.ReadDefault {
				ask += " " + b.Mode.String()
			}
			asks = append(asks, ask)
		}
		if !slices.Equal(asks, want.asks) || !strings.HasPrefix(out, want.out) || want.asks != nil && out != want.out {
			t.Errorf("%q: asks %q and answers %q, want %q and %q", say, asks, out, want.asks, want.out)
		}
	}
}
