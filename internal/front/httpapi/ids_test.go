package httpapi

import (
	"errors"
	"strings"
	"testing"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/snowflake"
)

func TestIDQuery_SizeMaxHolds(t *testing.T) {
	ids := make([]snowflake.ID, 1000)
	for i := range ids {
		ids[i] = 1<<63 - 1
	}
	for _, json := range []bool{false, true} {
		for _, n := range []int{1, 2, 1000} {
			q := IDQuery{Count: n, JSON: json}
			if got := len(q.AppendIDs(nil, ids[:n])); got > q.SizeMax() {
				t.Errorf("%+v: %d bytes, at most %d", q, got, q.SizeMax())
			}
		}
	}
}

func TestParseIDQuery_NamesItsOwnLimit(t *testing.T) {
	for _, n := range []string{"0", "", "-1", "01", "65537", "4294967296", "4294967297"} {
		_, err := ParseIDQuery("n=" + n)
		if !errors.Is(err, isotone.ErrInvalidArgument) || !strings.Contains(err.Error(), "1 to 65536") {
			t.Errorf("%q: %v", n, err)
		}
	}
	if q, err := ParseIDQuery("n=65536"); err != nil || q.Count != 65536 {
		t.Errorf("%+v, %v", q, err)
	}
	if _, err := ParseIDQuery("n=1&n=x"); err == nil || !strings.Contains(err.Error(), "twice") {
		t.Errorf("given twice: %v", err)
	}
}
