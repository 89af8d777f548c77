package wire

import (
	"errors"
	"strings"
	"testing"
)

func ownHello(id uint64) func() Hello {
	return func() Hello { return Hello{NodeID: id, Session: id * 11} }
}

// talk passes frames between the two sides until neither has more to send, and returns
// the error of each.
func talk(t *testing.T, dialer, acceptor *Handshake) (dialErr, acceptErr error) {
	t.Helper()
	out, dialErr := dialer.Start(nil)
	sides := [2]*Handshake{acceptor, dialer}
	errs := [2]error{nil, dialErr}
	for turn := 0; len(out) > 0; turn = 1 - turn {
		out, errs[turn] = sides[turn].Step(frameIn(t, out), nil)
	}
	return errs[1], errs[0]
}

func frameIn(t *testing.T, b []byte) Frame {
	t.Helper()
	var d Decoder
	d.SetHandshake(true)
	d.Feed(b)
	f, ok, err := d.Next()
	if !ok || err != nil {
		t.Fatalf("no frame: %v", err)
	}
	return f
}

func TestHandshake_AdmitsBothSides(t *testing.T) {
	dialer, acceptor := NewDialer(ownHello(2), 1, nil), NewAcceptor(ownHello(1), nil)
	if _, err := acceptor.Start(nil); err != nil {
		t.Fatal(err)
	}
	if dialErr, acceptErr := talk(t, dialer, acceptor); dialErr != nil || acceptErr != nil {
		t.Fatal(dialErr, acceptErr)
	}
	if !dialer.Done() || !acceptor.Done() || dialer.Peer().NodeID != 1 || acceptor.Peer().NodeID != 2 {
		t.Fatalf("dialer %+v, acceptor %+v", dialer, acceptor)
	}
}

func TestHandshake_AcceptorWaitsForTheDialer(t *testing.T) {
	acceptor := NewAcceptor(ownHello(1), nil)
	if _, err := acceptor.Step(frameIn(t, hello(t, FrameHello, Hello{NodeID: 2})), nil); err != nil {
		t.Fatal(err)
	}
	if acceptor.Done() {
		t.Fatal("done before the dialer was ready")
	}
	if _, err := acceptor.Step(frameIn(t, encoded(t, heartbeat(2, 1))), nil); !errors.Is(err, ErrProtocol) {
		t.Fatalf("a message before ready: %v", err)
	}
	if _, err := acceptor.Step(frameIn(t, AppendReady(nil)), nil); err == nil || acceptor.Done() {
		t.Fatal("a failed handshake goes on")
	}
}

func TestHandshake_TellsBothSidesOfARefusal(t *testing.T) {
	refuse := func(Hello) *Refusal { return Refusalf(RefusedWiped, "new disk") }
	for _, c := range []struct {
		name             string
		dialer, acceptor *Handshake
		by               Side // seen from the dialer
		code             RefusalCode
	}{
		{"acceptor refuses", NewDialer(ownHello(2), 1, nil), NewAcceptor(ownHello(1), refuse), Remote, RefusedWiped},
		{"dialer refuses", NewDialer(ownHello(2), 1, refuse), NewAcceptor(ownHello(1), nil), Self, RefusedWiped},
		{"another node answers", NewDialer(ownHello(3), 2, nil), NewAcceptor(ownHello(1), nil), Self, RefusedWrongNode},
		{"self", NewDialer(ownHello(1), 2, nil), NewAcceptor(ownHello(1), nil), Remote, RefusedWrongNode},
		{"lower id dials", NewDialer(ownHello(1), 2, nil), NewAcceptor(ownHello(2), nil), Remote, RefusedWrongNode},
		{"lower id asks", NewDialer(ownHello(1), 2, nil), NewAcceptor(ownHello(2), refuse), Remote, RefusedWiped},
	} {
		t.Run(c.name, func(t *testing.T) {
			dialErr, acceptErr := talk(t, c.dialer, c.acceptor)
			var d, a *RefusedError
			if !errors.As(dialErr, &d) || !errors.As(acceptErr, &a) {
				t.Fatalf("errors %v and %v", dialErr, acceptErr)
			}
			if d.By != c.by || a.By == c.by || *d.Refusal != *a.Refusal || d.Refusal.Code != c.code {
				t.Fatalf("dialer: %v; acceptor: %v", d, a)
			}
			if c.dialer.Done() || c.acceptor.Done() {
				t.Fatal("done nevertheless")
			}
		})
	}
}

func TestHandshake_RefusesItselfAndATwinByName(t *testing.T) {
	for session, want := range map[uint64]string{11: "dialed itself", 12: "two nodes have the ID"} {
		acceptor := NewAcceptor(ownHello(1), nil)
		_, err := acceptor.Step(frameIn(t, hello(t, FrameHello, Hello{NodeID: 1, Session: session})), nil)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("session %d: %v", session, err)
		}
	}
}

func TestHandshake_AnotherVersionLearnsBothVersions(t *testing.T) {
	future := frameOf(FrameHello, magic+"\x00\x09"+"whatever version 9 says")
	out, err := NewAcceptor(ownHello(1), nil).Step(frameIn(t, future), nil)
	var refused *RefusedError
	if !errors.As(err, &refused) || refused.By != Self || refused.Peer != 0 {
		t.Fatalf("error %v", err)
	}
	got, err := ParseRefusal(payload(t, out))
	if err != nil || got.Code != RefusedVersion {
		t.Fatalf("answer %v, %v", got, err)
	}
	if !strings.Contains(got.Message, "version 9") || !strings.Contains(got.Message, "version 3") {
		t.Fatalf("message %q", got.Message)
	}
	future = frameOf(FrameWelcome, magic+"\x00\x09")
	out, err = NewDialer(ownHello(2), 1, nil).Step(frameIn(t, future), nil)
	if !errors.As(err, &refused) || refused.Peer != 1 || frameIn(t, out).Type != FrameRefusal {
		t.Fatalf("dialer: %v", err)
	}
}

func TestHandshake_GivesAStrangerNoAnswer(t *testing.T) {
	for name, f := range map[string]Frame{
		"no magic":       {FrameHello, []byte("GET / HTTP/1.1")},
		"welcome":        {FrameWelcome, nil},
		"ready":          {FrameReady, nil},
		"refusal":        {FrameRefusal, []byte("\x01x\x00\x00")},
		"unknown":        {77, nil},
		"truncated":      {FrameHello, []byte(magic + "\x00\x03")},
		"a hello padded": {FrameHello, append(payload(t, hello(t, FrameHello, someHello)), 0)},
	} {
		out, err := NewAcceptor(ownHello(1), nil).Step(f, nil)
		if !errors.Is(err, ErrProtocol) || len(out) != 0 {
			t.Errorf("%s: %x, %v", name, out, err)
		}
	}
}

func TestHandshake_DoesNotSendABadHello(t *testing.T) {
	own := func() Hello { return Hello{NodeID: 2, ClientAddr: "no good"} }
	if out, err := NewDialer(own, 1, nil).Start(nil); !errors.Is(err, ErrClientAddr) || len(out) != 0 {
		t.Fatalf("%x, %v", out, err)
	}
}

func TestHandshake_ShowsIDsAsItIsTold(t *testing.T) {
	short := func(id uint64) uint64 { return id % 1000 }
	for want, pair := range map[string][2]*Handshake{
		"node 1 dialed node 2: the higher ID dials":                         {NewDialer(ownHello(1), 5002, nil), NewAcceptor(ownHello(5002), nil)},
		"dialed node 1, node 3 answered":                                    {NewDialer(ownHello(7002), 5001, nil), NewAcceptor(ownHello(5003), nil)},
		"dialed node 1, the same node with another data directory answered": {NewDialer(ownHello(7002), 1, nil), NewAcceptor(ownHello(5001), nil)},
	} {
		_, err := talk(t, pair[0].LogID(short), pair[1].LogID(short))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}
