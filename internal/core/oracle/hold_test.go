package oracle_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/core/oracle"
)

func TestState_KeepsHolds(t *testing.T) {
	var s oracle.State
	var claims []oracle.HoldChange
	for i := range uint64(oracle.HoldsMax + 5) {
		claims = append(claims, oracle.HoldChange{Kind: oracle.HoldClaim, Hold: oracle.Hold{
			Name: fmt.Sprintf("shop/%05d", i), Session: 1 + i%7, Token: isotone.Timestamp64(i + 1), TTL: time.Second, Value: "10.0.0.1:80",
		}})
	}
	for list := range slices.Chunk(claims, oracle.HoldChangesMax) {
		b := oracle.Command{Kind: oracle.KindHold, Holds: list}.Append(nil)
		cmd, err := oracle.DecodeCommand(b)
		if err != nil || len(b) > 64<<10 {
			t.Fatalf("%d bytes, %v", len(b), err)
		}
		s.Apply(1, cmd)
	}
	again, err := oracle.DecodeState(s.Append(nil))
	if err != nil || again.Holds.Len() != oracle.HoldsMax || again.Digest() != s.Digest() {
		t.Fatalf("%d holds, %v", again.Holds.Len(), err)
	}
	if oldest := again.Holds.Oldest(3); len(oldest) != 3 || oldest[0] != claims[0].Hold || oldest[2] != claims[2].Hold || len(again.Holds.Oldest(0)) != 0 {
		t.Errorf("the oldest: %v", oldest)
	}
	freed := again.Apply(2, oracle.Command{Kind: oracle.KindHold, Holds: []oracle.HoldChange{
		{Kind: oracle.HoldRelease, Hold: oracle.Hold{Name: "shop/00000", Token: 2}},
		{Kind: oracle.HoldRelease, Hold: oracle.Hold{Name: "shop/00000", Token: 1}},
	}}).Freed
	if len(freed) != 1 || freed[0] != claims[0].Hold || again.Holds.Len() != oracle.HoldsMax-1 || again.Digest() == s.Digest() {
		t.Errorf("%d holds, freed: %v", again.Holds.Len(), freed)
	}
}

func TestDecode_RefusesWrongHolds(t *testing.T) {
	good := oracle.Hold{Name: "x", Session: 1, Token: 2, TTL: time.Second}
	for name, change := range map[string]func(*oracle.Hold){
		"no name":          func(h *oracle.Hold) { h.Name = "" },
		"a long name":      func(h *oracle.Hold) { h.Name = strings.Repeat("n", oracle.LockNameMax+1) },
		"a long value":     func(h *oracle.Hold) { h.Value = strings.Repeat("v", oracle.LockValueMax+1) },
		"no session":       func(h *oracle.Hold) { h.Session = 0 },
		"no TTL":           func(h *oracle.Hold) { h.TTL = 0 },
		"a TTL of an hour": func(h *oracle.Hold) { h.TTL = time.Hour },
	} {
		h := good
		change(&h)
		c := oracle.Command{Kind: oracle.KindHold, Holds: []oracle.HoldChange{{Kind: oracle.HoldClaim, Hold: good}, {Kind: oracle.HoldClaim, Hold: h}}}
		if _, err := oracle.DecodeCommand(c.Append(nil)); err == nil {
			t.Errorf("%s is accepted", name)
		}
	}
	unknown := oracle.Command{Kind: oracle.KindHold, Holds: []oracle.HoldChange{{Kind: 9}}}
	if _, err := oracle.DecodeCommand(unknown.Append(nil)); err == nil || !strings.Contains(err.Error(), "newer version") {
		t.Error(err)
	}
	if got := oracle.LevelOf(unknown); got != oracle.HoldLevel {
		t.Errorf("level %d", got)
	}
}

func TestState_ClaimsWaitAfterARestoration(t *testing.T) {
	var s oracle.State
	if s.ClaimsFrom() != 0 {
		t.Error("a new cluster waits")
	}
	floor := uint64(1_700_000_000_000_000_000)
	s = oracle.Restored(oracle.State{Ceiling: 5}, floor)
	if got := s.ClaimsFrom(); got < floor+uint64(oracle.HoldTTLMax) || got > floor+uint64(oracle.HoldTTLMax+time.Second) || s.Holds.Len() != 0 {
		t.Errorf("claims from %d after the floor", got-floor)
	}
}
