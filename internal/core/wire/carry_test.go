package wire

import (
	"bytes"
	"errors"
	"reflect"
	"testing"
)

func TestCarry_ArrivesAsItWasSent(t *testing.T) {
	want := &Carry{Who: "alice, by node 2", Method: "POST", Target: "/admin/floor?x=1", Body: []byte(`{"time":"1"}`)}
	b, err := AppendCarry(nil, 7, want)
	if err != nil {
		t.Fatal(err)
	}
	b = AppendCarryAnswer(b, 8, 409, []byte("no"))
	c := NewCodec(1, Hello{NodeID: 2})
	c.Open(Hello{NodeID: 2})
	var asked, answered int
	c.OnCarry(func(nonce uint64, r *Carry) {
		asked++
		if nonce != 7 || !reflect.DeepEqual(r, want) {
			t.Errorf("%d %+v", nonce, r)
		}
	})
	c.OnCarryAnswer(func(nonce uint64, status uint16, body []byte) {
		answered++
		if nonce != 8 || status != 409 || string(body) != "no" {
			t.Errorf("%d %d %q", nonce, status, body)
		}
	})
	for len(b) > 0 { // cut into pieces
		n := min(len(b), 11)
		if _, err := c.Parse(nil, b[:n]); err != nil {
			t.Fatal(err)
		}
		b = b[n:]
	}
	if asked != 1 || answered != 1 {
		t.Errorf("%d requests, %d answers", asked, answered)
	}
	if _, err := AppendCarry(nil, 1, &Carry{Body: make([]byte, CarrySizeMax)}); !errors.Is(err, ErrFrameSize) {
		t.Errorf("too large: %v", err)
	}
}

func TestCarry_RefusesWhatIsNone(t *testing.T) {
	for _, p := range [][]byte{nil, make([]byte, 7), append(make([]byte, 8), "null"...), append(make([]byte, 8), "{"...), bytes.Repeat([]byte("x"), CarrySizeMax+1)} {
		if _, _, err := parseCarry(p); !errors.Is(err, ErrProtocol) {
			t.Errorf("%.20q: %v", p, err)
		}
	}
	if _, _, _, err := parseCarryAnswer(make([]byte, 9)); !errors.Is(err, ErrProtocol) {
		t.Error(err)
	}
}

// FuzzCarry: what is read as a request is sent again as it was read.
func FuzzCarry(f *testing.F) {
	whole, err := AppendCarry(nil, 7, &Carry{Who: "alice", Method: "GET", Target: "/admin/members", Body: []byte("{}")})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(whole[lengthSize+typeSize : len(whole)-checksumSize])
	f.Add([]byte("12345678{}"))
	f.Add([]byte("12345678null"))
	f.Fuzz(func(t *testing.T, p []byte) {
		_, _, _, _ = parseCarryAnswer(p)
		nonce, c, err := parseCarry(p)
		if err != nil {
			return
		}
		again, err := AppendCarry(nil, nonce, c)
		if err != nil {
			return // escaped, it is longer
		}
		n, d, err := parseCarry(again[lengthSize+typeSize : len(again)-checksumSize])
		if err != nil || n != nonce || d.Target != c.Target || !bytes.Equal(d.Body, c.Body) {
			t.Fatalf("%d %+v, then %d %+v, %v", nonce, c, n, d, err)
		}
	})
}
