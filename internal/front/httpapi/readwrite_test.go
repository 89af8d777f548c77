package httpapi

import (
	"errors"
	"math"
	"strings"
	"testing"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/core/timeline"
)

func TestParseOracleQuery(t *testing.T) {
	for raw, want := range map[string]Query{
		"op=write":                                       {Count: 1, Op: timeline.OpWrite},
		"timeline=a%2Fb&op=peek&x=1&x=2&y":               {Count: 1, Timeline: "a/b", Op: timeline.OpPeek},
		"op=read&mode=lease":                             {Count: 1, Op: timeline.OpRead, Mode: isotone.ReadLease},
		"at=0&op=apply&timeline=orders":                  {Count: 1, Timeline: "orders", Op: timeline.OpApply},
		"op=%61pply&at=18446744073709551615&mode=quorum": {Count: 1, Op: timeline.OpApply, At: math.MaxUint64, Mode: isotone.ReadQuorum},
	} {
		if got, err := ParseOracleQuery(raw); err != nil || got != want {
			t.Errorf("%q: %+v, %v, want %+v", raw, got, err, want)
		}
	}
	for raw, hint := range map[string]string{
		"": "want write, peek", "op=": "want write, peek", "op=issue": "want write, peek", "op=WRITE": "want write, peek", "op=unknown": "want write, peek", "op=read&op=read": "twice",
		"op=apply": "apply has a time", "op=write&at=5": "apply has a time", "op=apply&at=": "unix milliseconds", "op=apply&at=-1": "unix milliseconds", "op=apply&at=18446744073709551616": "unix milliseconds",
		"op=apply&at=1&at=2": "twice", "op=read&timeline=": "timeline", "op=read&timeline=a%20b": "timeline", "op=read&mode=x": "mode", "op=read&mode=lease&mode=lease": "twice",
		"op=read;mode=lease": "semicolon", "op=%zz": "percent",
	} {
		if q, err := ParseOracleQuery(raw); !errors.Is(err, isotone.ErrInvalidArgument) || !strings.Contains(err.Error(), hint) {
			t.Errorf("%q: %+v, %v, want %q", raw, q, err, hint)
		}
	}
	if got := string(AppendOracleAnswer(nil, 1764298822123)); got != `{"ms":1764298822123}` {
		t.Error(got)
	}
}
