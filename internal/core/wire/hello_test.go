package wire

import (
	"bytes"
	"encoding/binary"
	"errors"
	"strings"
	"testing"
	"unicode/utf8"
)

var someHello = Hello{
	ClusterID: 1, NodeID: 2, Incarnation: 3, Boot: 4, Session: 5, VotersHash: 6, Term: 7, LastIndex: 8,
	ClientAddr: "127.0.0.1:8080", Level: 9, Stage: 2, Founders: "1,2,3", PeerAddr: "127.0.0.1:60001", Configured: true, Layout: "41/5/5/12@1288834974657",
}

// payload returns the payload of a single frame.
func payload(t testing.TB, b []byte) []byte {
	t.Helper()
	var d Decoder
	d.Feed(b)
	f, ok, err := d.Next()
	if !ok || err != nil {
		t.Fatalf("no frame: %v", err)
	}
	return bytes.Clone(f.Payload)
}

func TestHello_SurvivesTheWire(t *testing.T) {
	for _, want := range []Hello{{}, someHello, {ClientAddr: strings.Repeat("x", clientAddrSizeMax)}} {
		got, err := ParseHello(payload(t, hello(t, FrameHello, want)))
		if err != nil || got != want {
			t.Errorf("got %+v, %v; want %+v", got, err, want)
		}
	}
}

// A later version adds sections, and extends known ones.
func TestHello_SkipsWhatItDoesNotKnow(t *testing.T) {
	p := payload(t, hello(t, FrameHello, someHello))
	p = appendSection(p, 200, []byte("of a later version"))
	p = appendSection(p, sectionStage, []byte{3, 7, 7})
	p = appendSection(p, 201, nil)
	want := someHello
	want.Stage = 3
	if got, err := ParseHello(p); err != nil || got != want {
		t.Errorf("got %+v, %v; want %+v", got, err, want)
	}
}

func TestHello_RefusesABadClientAddress(t *testing.T) {
	for _, addr := range []string{strings.Repeat("x", clientAddrSizeMax+1), "a:1\r\nSet-Cookie: x", "a b", "é:1", "\x00"} {
		prefix := []byte("prefix")
		b, err := AppendHello(prefix, FrameHello, Hello{ClientAddr: addr})
		if !errors.Is(err, ErrClientAddr) || string(b) != "prefix" {
			t.Errorf("%q: %q, %v", addr, b, err)
		}
		if b, err := AppendHello(prefix, FrameHello, Hello{PeerAddr: addr}); !errors.Is(err, ErrClientAddr) || string(b) != "prefix" {
			t.Errorf("peer address %q: %q, %v", addr, b, err)
		}
		p := payload(t, hello(t, FrameHello, Hello{}))[:helloSizeFixed]
		binary.BigEndian.PutUint16(p[helloSizeFixed-2:], uint16(len(addr)))
		if _, err := ParseHello(append(p, addr...)); !errors.Is(err, ErrClientAddr) {
			t.Errorf("parsing %q: %v", addr, err)
		}
	}
}

func TestHello_ReportsAnotherVersionWhateverFollows(t *testing.T) {
	_, err := ParseHello([]byte(magic + "\x00\x09future"))
	var version *VersionError
	if !errors.As(err, &version) || version.Theirs != 9 || version.Ours != Version {
		t.Fatalf("error %v", err)
	}
}

func TestHello_RefusesCutAndPaddedPayloads(t *testing.T) {
	whole := map[int]bool{} // where a hello may end
	p := payload(t, hello(t, FrameHello, someHello))
	for n := range p {
		if _, err := ParseHello(p[:n]); err == nil {
			whole[n] = true
		} else if !errors.Is(err, ErrProtocol) {
			t.Fatalf("cut to %d bytes: %v", n, err)
		}
	}
	if _, err := ParseHello(append(p, 'x')); !errors.Is(err, ErrProtocol) {
		t.Fatalf("padded: %v", err)
	}
	if len(whole) != 6 { // before each section
		t.Errorf("hellos may be cut at %v", whole)
	}
}

func TestRefusal_SurvivesTheWire(t *testing.T) {
	want := Refusalf(RefusedWiped, "node %d has a new disk: été", 3)
	got, err := ParseRefusal(payload(t, AppendRefusal(nil, want)))
	if err != nil || *got != *want {
		t.Fatalf("got %v, %v", got, err)
	}
	if !errors.Is(got, &Refusal{Code: RefusedWiped}) || errors.Is(got, &Refusal{Code: RefusedStale}) {
		t.Error("refusals match by more or less than their code")
	}
}

func TestRefusal_CutsALongMessageBetweenCharacters(t *testing.T) {
	long := Refusalf("x", "%s", "a"+strings.Repeat("é", refusalMessageSizeMax))
	got, err := ParseRefusal(payload(t, AppendRefusal(nil, long)))
	if err != nil || len(got.Message) != refusalMessageSizeMax-1 || !utf8.ValidString(got.Message) {
		t.Fatalf("%d bytes, %v", len(got.Message), err)
	}
}

func TestRefusal_RefusesMalformedPayloads(t *testing.T) {
	for _, p := range []string{
		"", "\x00", "\x01", "\x01x", "\x01x\x00", "\x00\x00\x00", "\x01X\x00\x00", "\xff\x00\x00",
		"\x01x\x00\x01", "\x01x\x00\x01ab", "\x01x\x00\x01\xff", "\x01x\x04\x01" + strings.Repeat("a", 1025),
	} {
		if r, err := ParseRefusal([]byte(p)); !errors.Is(err, ErrProtocol) {
			t.Errorf("%q: %v, %v", p, r, err)
		}
	}
}

// A hello or refusal that parses encodes to the same bytes again.
func FuzzHello(f *testing.F) {
	f.Add(payload(f, hello(f, FrameHello, someHello)))
	f.Add(payload(f, AppendRefusal(nil, Refusalf(RefusedStale, "old copy"))))
	f.Add([]byte("\xff\x00\x00"))
	f.Fuzz(func(t *testing.T, p []byte) {
		if h, err := ParseHello(p); err == nil {
			b, err := AppendHello(nil, FrameHello, h)
			if err != nil {
				t.Fatalf("hello %x: %v", p, err)
			}
			again := payload(t, b)
			if h2, err := ParseHello(again); err != nil || h2 != h {
				t.Fatalf("hello %x: %+v, then %+v, %v", p, h, h2, err)
			}
		}
		if r, err := ParseRefusal(p); err == nil {
			if again := payload(t, AppendRefusal(nil, r)); !bytes.Equal(again, p) {
				t.Fatalf("refusal %x encodes to %x", p, again)
			}
		}
	})
}
