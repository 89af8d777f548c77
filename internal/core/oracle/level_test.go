package oracle_test

import (
	"reflect"
	"strings"
	"testing"

	"github.com/isotone/isotone/internal/core/oracle"
)

// A section is a byte that says which, two bytes of length, and the value.
func section(which byte, value string) string {
	return string([]byte{which, byte(len(value) >> 8), byte(len(value))}) + value
}

func TestDecode_SkipsWhatIsOptionalAndRefusesTheRest(t *testing.T) {
	for name, c := range map[string]oracle.Command{
		"a reservation": {Kind: oracle.KindReserve, Target: 9, Digest: oracle.Digest{Index: 1, Sum: 2}},
		"a record":      {Kind: oracle.KindRegister, Member: oracle.Member{ID: 1, ClientAddr: "c", Level: 2}},
		"a level":       {Kind: oracle.KindLevel, Level: 2},
	} {
		b := string(c.Append(nil))
		got, err := oracle.DecodeCommand([]byte(b + section(200, "of a later version") + section(255, "")))
		if err != nil || !reflect.DeepEqual(got, c) {
			t.Errorf("%s: %+v, %v; want %+v", name, got, err, c)
		}
		if _, err := oracle.DecodeCommand([]byte(b + section(100, "needed"))); err == nil || !strings.Contains(err.Error(), "newer version") {
			t.Errorf("%s with a section that is not optional: %v", name, err)
		}
		for _, cut := range []string{"\x80", "\x80\x00", "\x80\x00\x05four"} {
			if _, err := oracle.DecodeCommand([]byte(b + cut)); err == nil {
				t.Errorf("%s with a section that is cut to %q is accepted", name, cut)
			}
		}
	}
	s := oracle.State{Level: 2, ClusterID: 3, Ceiling: 4, Members: []oracle.Member{{ID: 5, PeerAddr: "p", Level: 2}}}
	got, err := oracle.DecodeState(append(s.Append(nil), section(200, "of a later version")...))
	if err != nil || !reflect.DeepEqual(got, s) {
		t.Errorf("%+v, %v; want %+v", got, err, s)
	}
	if _, err := oracle.DecodeState(append(s.Append(nil), section(100, "needed")...)); err == nil {
		t.Error("a state with a section that is not optional is accepted")
	}
}

func TestDecode_CommandsOfLaterVersions(t *testing.T) {
	c, err := oracle.DecodeCommand([]byte{200, 1, 2, 3})
	if err != nil {
		t.Fatal(err)
	}
	s := oracle.State{Ceiling: 5}
	if s.Apply(0, c); !reflect.DeepEqual(s, oracle.State{Ceiling: 5}) {
		t.Errorf("an optional command changed the state to %+v", s)
	}
	if _, err := oracle.DecodeCommand([]byte{99}); err == nil || !strings.Contains(err.Error(), "newer version") {
		t.Error(err)
	}
}

func TestState_TheLevelIsNeverLowered(t *testing.T) {
	s := oracle.State{ClusterID: 1, Ceiling: 2, Members: []oracle.Member{{ID: 3}}}
	if s.CurrentLevel() != 1 {
		t.Errorf("it begins at %d", s.CurrentLevel())
	}
	s.Apply(0, oracle.Command{Kind: oracle.KindLevel, Level: 2})
	s.Apply(0, oracle.Command{Kind: oracle.KindLevel, Level: 1})
	again, err := oracle.DecodeState(s.Append(nil))
	if err != nil || again.CurrentLevel() != 2 || s.CurrentLevel() != 2 {
		t.Errorf("level %d, decoded as %d, %v; want 2", s.CurrentLevel(), again.CurrentLevel(), err)
	}
	if got := oracle.LevelOf(oracle.Command{Kind: oracle.KindLevel, Level: 2}); got != 2 {
		t.Errorf("level %d is needed to read that the level is 2", got)
	}
}

// Every field of the state but the peer addresses counts in the digest.
func TestDigest_TellsStatesApart(t *testing.T) {
	base := func() oracle.State {
		return oracle.State{
			Level: 3, ClusterID: 1, Ceiling: 2, Space: space,
			Members: []oracle.Member{{ID: 3, PeerAddr: "p", ClientAddr: "c", Incarnation: 4, Boot: 5, Session: 6, Durable: 7, Level: 8}},
			Workers: []oracle.WorkerLease{{Worker: 1, Slot: 2, Fixed: true, Node: 3, Session: 4, Start: 5, End: 6}},
		}
	}
	want := base()
	seen := map[uint64]string{want.Digest(): "nothing"}
	change := func(name string, v reflect.Value, s *oracle.State) {
		switch v.Kind() {
		case reflect.Bool:
			v.SetBool(!v.Bool())
		case reflect.String:
			v.SetString(v.String() + "x")
		case reflect.Int64:
			v.SetInt(v.Int() + 1)
		default:
			v.SetUint(v.Uint() + 1)
		}
		if other, ok := seen[s.Digest()]; ok != (name == "PeerAddr" || name == "Configured") {
			t.Errorf("a change of %s has the digest of a change of %s", name, other)
		}
		seen[s.Digest()] = name
	}
	for _, part := range []func(*oracle.State) reflect.Value{
		func(s *oracle.State) reflect.Value { return reflect.ValueOf(s).Elem() },
		func(s *oracle.State) reflect.Value { return reflect.ValueOf(&s.Space).Elem() },
		func(s *oracle.State) reflect.Value { return reflect.ValueOf(&s.Members[0]).Elem() },
		func(s *oracle.State) reflect.Value { return reflect.ValueOf(&s.Workers[0]).Elem() },
	} {
		s := base()
		for i := range part(&s).NumField() {
			s := base()
			switch v := part(&s).Field(i); v.Kind() {
			case reflect.Slice, reflect.Struct:
			default:
				change(part(&s).Type().Field(i).Name, v, &s)
			}
		}
	}
}
