package grpc

import (
	"encoding/base64"
	"errors"
	"fmt"
	"strconv"
	"testing"
	"time"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/core/session"
	"github.com/isotone/isotone/internal/front"
)

// sessionRequest returns the bytes of a SessionsConnectRequest, which is given as JSON.
func sessionRequest(t testing.TB, text string) []byte {
	t.Helper()
	m := blank(t, "isotone.v1.SessionsConnectRequest")
	if err := protojson.Unmarshal([]byte(text), m); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	b, err := proto.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// Stamps as JSON: 16 bytes of zero, and 15.
const stamp16, stamp15 = `"AAAAAAAAAAAAAAAAAAAAAA=="`, `"AAAAAAAAAAAAAAAAAAAA"`

// sessionRequests are valid, and have each field.
var sessionRequests = []string{
	`{}`,
	`{"id": "7", "lows": [{"group": "a", "stamp": ` + stamp16 + `}], "doubts": [{"group": "b", "stamp": ` + stamp16 + `}], "sealed": [{"group": "c", "stamp": ` + stamp16 + `}]}`,
	`{"id": "1", "bind": {"session": "9", "epoch": 3, "ttlMs": 3000, "lingerMs": 0, "label": "me", "groups": [{"name": "a", "low": ` + stamp16 + `, "high": ` + stamp16 + `}]}}`,
	`{"bind": {"session": "9", "ttlMs": 3000}}`,
	`{"close": {}}`,
	`{"acquire": {"name": "x", "try": true, "value": "v", "ticket": ` + stamp16 + `}}`,
	`{"cancel": {"name": "x"}}`,
	`{"release": {"name": "x", "token": "5"}}`,
	`{"take": {"group": "a", "count": "2", "form": "FORM_U64", "ahead": true}}`,
}

// stampsIn returns a list of GroupStamp or SessionGroup.
func stampsIn(m protoreflect.Message, field, name, low, high string) (list []stampText) {
	all := of(m, field).List()
	for i := range all.Len() {
		one := all.Get(i).Message()
		s := stampText{group: of(one, name).String(), low: of(one, low).Bytes()}
		if high != "" {
			s.high = of(one, high).Bytes()
		}
		list = append(list, s)
	}
	return list
}

// askIn returns what m asks for.
func askIn(m protoreflect.Message) (a sessionAsk) {
	a.id = of(m, "id").Uint()
	a.lows, a.doubts, a.sealed = stampsIn(m, "lows", "group", "stamp", ""), stampsIn(m, "doubts", "group", "stamp", ""), stampsIn(m, "sealed", "group", "stamp", "")
	field := m.WhichOneof(m.Descriptor().Oneofs().ByName("action"))
	if field == nil {
		return a
	}
	c := m.Get(field).Message()
	a.action.kind = field.Number()
	switch field.Number() {
	case actionBind:
		a.action.number, a.action.epoch, a.action.ttl = of(c, "session").Uint(), uint32(of(c, "epoch").Uint()), uint32(of(c, "ttl_ms").Uint())
		a.action.linger, a.action.hasLinger = uint32(of(c, "linger_ms").Uint()), has(c, "linger_ms")
		a.action.value, a.action.groups = of(c, "label").String(), stampsIn(c, "groups", "name", "low", "high")
	case actionAcquire:
		a.action.name, a.action.try, a.action.value, a.action.ticket = of(c, "name").String(), of(c, "try").Bool(), of(c, "value").String(), of(c, "ticket").Bytes()
	case actionCancel:
		a.action.name = of(c, "name").String()
	case actionRelease:
		a.action.name, a.action.number = of(c, "name").String(), of(c, "token").Uint()
	case actionTake:
		a.action.name, a.action.count, a.action.form = of(c, "group").String(), count{of(c, "count").Uint(), has(c, "count")}, int32(of(c, "form").Enum())
		a.action.ahead = of(c, "ahead").Bool()
	}
	return a
}

// FuzzParse_Sessions: requests are read as google.golang.org/protobuf reads them.
func FuzzParse_Sessions(f *testing.F) {
	for _, text := range sessionRequests {
		for _, other := range sessionRequests[:4] {
			f.Add(append(sessionRequest(f, text), sessionRequest(f, other)...)) // which protobuf merges
		}
	}
	f.Add([]byte{0x3a, 0x03, 0x0a, 0x01, 0xff})
	f.Fuzz(func(t *testing.T, b []byte) {
		m := blank(t, "isotone.v1.SessionsConnectRequest")
		theirs := proto.Unmarshal(b, m)
		ours, err := parseSessionAsk(b)
		if (theirs == nil) != (err == nil) {
			t.Fatalf("%x: %v, want %v", b, err, theirs)
		}
		if err != nil {
			return
		}
		// Of a GroupStamp the third field is not known.
		for _, list := range [][]stampText{ours.lows, ours.doubts, ours.sealed} {
			for i := range list {
				list[i].high = nil
			}
		}
		if got, want := fmt.Sprintf("%+v", ours), fmt.Sprintf("%+v", askIn(m)); got != want {
			t.Errorf("%x: %s, want %s", b, got, want)
		}
		_, _ = ours.request()
	})
}

func TestSessionRequest_IsWhatIsAskedFor(t *testing.T) {
	asked := func(text string) *front.SessionRequest {
		a, err := parseSessionAsk(sessionRequest(t, text))
		if err != nil {
			t.Fatal(err)
		}
		q, err := a.request()
		if err != nil {
			t.Errorf("%s: %v", text, err)
		}
		return q
	}
	for _, text := range sessionRequests {
		asked(text)
	}
	if b := asked(sessionRequests[2]).Bind; b.ID != 9 || b.Epoch != 3 || b.TTL != 3*time.Second || b.Linger != 0 || b.Label != "me" || len(b.Reports) != 1 || b.Reports[0].Group != "a" {
		t.Errorf("%+v", b)
	}
	if b := asked(sessionRequests[3]).Bind; b.Linger != 3*time.Second {
		t.Errorf("LINGER is %v without one, want the TTL", b.Linger)
	}
	if q := asked(sessionRequests[5]).Lock; q.Op != session.LockTry || q.Name != "x" || q.Value != "v" {
		t.Errorf("%+v", q)
	}
	if q := asked(`{"acquire": {"name": "x"}}`).Lock; q.Op != session.LockAcquire {
		t.Errorf("%+v", q)
	}
	if q := asked(sessionRequests[8]); q.Group != "a" || q.Count != 2 || !q.U64 || !q.Ahead {
		t.Errorf("%+v", q)
	}
	for _, text := range []string{
		`{"lows": [{"group": "a", "stamp": ` + stamp15 + `}]}`, `{"doubts": [{"group": "a"}]}`, `{"sealed": [{"group": "a"}]}`,
		`{"bind": {"session": "1", "groups": [{"name": "a", "high": ` + stamp16 + `}]}}`, `{"bind": {"session": "1", "groups": [{"name": "a", "low": ` + stamp16 + `}]}}`,
		`{"acquire": {"name": "x", "ticket": ` + stamp15 + `}}`,
		`{"take": {}}`, `{"take": {"group": "a", "count": "0"}}`, `{"take": {"group": "a", "count": "262145", "form": "FORM_U64"}}`, `{"take": {"group": "a", "form": 2}}`,
	} {
		a, err := parseSessionAsk(sessionRequest(t, text))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := a.request(); !errors.Is(err, isotone.ErrInvalidArgument) {
			t.Errorf("%s: %v", text, err)
		}
	}
}

func TestSessionAnswers_AreTheirMessages(t *testing.T) {
	const name, token = "x\xff", isotone.Timestamp64(7) // the name is that of a session over another protocol
	q := &front.SessionRequest{Count: 3, Range: isotone.Range{First: stamp, Count: 3}}
	q.Ahead = true
	q.Reply = session.Reply{Holds: []session.Hold{{Name: name, Token: token}}, Frontiers: []session.GroupStamp{{Group: "g", Stamp: stamp}}, Bound: stamp}
	equal := func(b []byte, message, text string) {
		t.Helper()
		got := parsed(t, message, b)
		want := blank(t, message)
		if err := protojson.Unmarshal([]byte(text), want); err != nil {
			t.Fatal(err)
		}
		if !proto.Equal(got, want) {
			t.Errorf("%v, want %v", got, want)
		}
	}
	wide, _ := stamp.AppendBinary(nil)
	s := strconv.Quote(base64.StdEncoding.EncodeToString(wide))
	equal(appendSessionAnswer(nil, q), "isotone.v1.SessionAnswer", `{"holds": [{"name": "x\ufffd", "token": "7"}], "frontiers": [{"group": "g", "stamp": `+s+`}], "taken": {"wide": `+s+`, "count": "3"}, "bound": `+s+`}`)
	equal(appendSessionAnswer(nil, &front.SessionRequest{}), "isotone.v1.SessionAnswer", `{}`)
	for text, m := range map[string]session.Message{
		`{"queued": {"name": "x", "ticket": ` + s + `}}`:                       {Kind: session.MessageQueued, Name: "x", Ticket: stamp},
		`{"granted": {"name": "x", "token": "7"}}`:                             {Kind: session.MessageGranted, Name: "x", Token: token},
		`{"released": {"name": "x", "token": "7"}}`:                            {Kind: session.MessageReleased, Name: "x", Token: token},
		`{"seal": {"group": "g", "stamp": ` + s + `}}`:                         {Kind: session.MessageSeal, Group: "g", Through: stamp},
		`{"fenced": {"name": "g", "low": ` + stamp16 + `, "high": ` + s + `}}`: {Kind: session.MessageFenced, Group: "g", Through: stamp},
		`{"expired": {}}`:    {Kind: session.MessageExpired},
		`{"superseded": {}}`: {Kind: session.MessageSuperseded},
	} {
		equal(appendTold(nil, m), "isotone.v1.SessionsConnectResponse", text)
	}
	equal(appendHolder(nil, nil), "isotone.v1.LocksGetResponse", `{}`)
	equal(appendHolder(nil, []front.Holder{{Name: "x", Token: token, Value: "v", Session: 15, Label: "me"}}), "isotone.v1.LocksWatchResponse",
		`{"holder": {"token": "7", "value": "v", "session": "000000000000000f", "label": "me"}}`)
}
