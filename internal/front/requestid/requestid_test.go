package requestid_test

import (
	"strings"
	"testing"

	"github.com/isotone/isotone/internal/front/requestid"
)

const valid = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"

func TestParseTraceparent_IsStrict(t *testing.T) {
	for s, want := range map[string]bool{
		valid: true,
		"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-ff":      true, // flags to come are ignored
		"01-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01":      true,
		"cc-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-what": true, // a later version may be longer
		"cc-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01.what": false,
		"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-what": false,
		"ff-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01":      false,
		"00-00000000000000000000000000000000-00f067aa0ba902b7-01":      false,
		"00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01":      false,
		"00-4BF92F3577B34DA6A3CE929D0E0E4736-00f067aa0ba902b7-01":      false,
		"00-4bf92f3577b34da6a3ce929d0e0e473g-00f067aa0ba902b7-01":      false,
		"0x-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01":      false,
		"00_4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01":      false,
		valid[:54]:  false,
		" " + valid: false,
		valid + " ": false,
		"":          false,
		"cc" + valid[2:] + strings.Repeat("-", 1000): false,
	} {
		if _, got := requestid.ParseTraceparent(s); got != want {
			t.Errorf("%q: %v", s, got)
		}
		if _, got := requestid.ParseTraceparent([]byte(s)); got != want {
			t.Errorf("%q as bytes: %v", s, got)
		}
	}
}

func TestMaker_ContinuesATrace(t *testing.T) {
	parent, _ := requestid.ParseTraceparent(valid)
	got := requestid.NewMaker().Start("request-1", valid)
	if got.ID != "request-1" || !got.Continued || got.Trace.ID != parent.ID || got.Trace.Flags != 1 {
		t.Errorf("%+v", got)
	}
	if got.Trace.Span == parent.Span {
		t.Error("the span is the parent's")
	}
}

func TestMaker_MakesWhatIsMissingOrInvalid(t *testing.T) {
	m := requestid.NewMaker()
	seen := map[string]bool{}
	for _, id := range []string{"", "a b", "a\r\nSet-Cookie: x", "ä", strings.Repeat("x", requestid.IDBytesMax+1), "\"", "a,b", "{"} {
		got := m.Start(id, strings.ToUpper(valid))
		if got.Continued || !requestid.ValidID(got.ID) || len(got.ID) != requestid.IDBytesMade || seen[got.ID] {
			t.Errorf("%q: %+v", id, got)
		}
		seen[got.ID] = true
		if _, ok := requestid.ParseTraceparent(got.Trace.String()); !ok {
			t.Errorf("made %q", got.Trace)
		}
	}
	for _, id := range []string{"a", strings.Repeat("x", requestid.IDBytesMax), "f81d4fae-7dec-11d0-a765-00a0c91e6bf6", "Root=1-67891233:abc/def+ghi@x~_."} {
		if got := m.Start(id, ""); got.ID != id {
			t.Errorf("%q became %q", id, got.ID)
		}
	}
}

func TestStart_TakesOneValueOnly(t *testing.T) {
	got := requestid.Start([]string{"a", "b"}, []string{valid, valid})
	if got.ID == "a" || got.ID == "b" || got.Continued {
		t.Errorf("%+v", got)
	}
	if got := requestid.Start([]string{"a"}, []string{valid}); got.ID != "a" || !got.Continued {
		t.Errorf("%+v", got)
	}
}

func TestMaker_DoesNotAllocate(t *testing.T) {
	m, b, raw := requestid.NewMaker(), make([]byte, 0, 256), []byte(valid)
	if got := testing.AllocsPerRun(100, func() {
		b = m.AppendID(b[:0])
		parent, _ := requestid.ParseTraceparent(raw)
		b = m.Child(parent).Append(b)
		b = m.New().Append(b)
		if !requestid.ValidID(b[:32]) {
			t.Fatal("not valid")
		}
	}); got != 0 {
		t.Errorf("%v allocations", got)
	}
}

func FuzzParseTraceparent(f *testing.F) {
	f.Add(valid)
	f.Add("cc-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-what")
	f.Fuzz(func(t *testing.T, s string) {
		trace, ok := requestid.ParseTraceparent(s)
		if !ok {
			if trace != (requestid.Trace{}) {
				t.Error("something of what is not valid")
			}
			return
		}
		again, ok := requestid.ParseTraceparent(trace.String())
		if trace.Flags &= 1; !ok || again != trace {
			t.Errorf("%q became %q", s, trace)
		}
		if s[2:common] != trace.String()[2:common] {
			t.Errorf("%q became %q", s, trace)
		}
	})
}

// common is as far as all versions are the same but for their number.
const common = requestid.TraceparentBytes - 2

func BenchmarkMaker(b *testing.B) {
	m, out := requestid.NewMaker(), make([]byte, 0, 256)
	b.ReportAllocs()
	for b.Loop() {
		out = m.New().Append(m.AppendID(out[:0]))
	}
}
