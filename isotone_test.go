package isotone_test

import (
	"errors"
	"testing"

	"github.com/isotone/isotone"
)

func TestClusterID_HasOneSpelling(t *testing.T) {
	for _, id := range []isotone.ClusterID{1, 0xabc, 1<<64 - 1} {
		if got, err := isotone.ParseClusterID(id.String()); err != nil || got != id {
			t.Errorf("%s: %v, %v", id, got, err)
		}
	}
	if got := isotone.ClusterID(0xabc).String(); got != "0000000000000abc" {
		t.Errorf("%s", got)
	}
	if got, err := isotone.ParseClusterID("0000000000000ABC"); err != nil || got != 0xabc {
		t.Errorf("upper case: %v, %v", got, err)
	}
	for _, text := range []string{"", "abc", "0000000000000000", "0x00000000000abc", "+000000000000abc", "00000000_0000abc", "0000000000000abg", "00000000000000abc"} {
		if got, err := isotone.ParseClusterID(text); !errors.Is(err, isotone.ErrInvalidArgument) {
			t.Errorf("%q: %v, %v", text, got, err)
		}
	}
}
