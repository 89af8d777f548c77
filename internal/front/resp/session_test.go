package resp

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/core/session"
	"github.com/isotone/isotone/internal/front"
)

// askedText is a request as a line.
func askedText(r *front.SessionRequest) string {
	var b strings.Builder
	if r.Bind != nil {
		fmt.Fprintf(&b, "bind %d/%d %v %v %v ", r.Bind.ID, r.Bind.Epoch, r.Bind.TTL, r.Bind.Linger, r.Bind.Reports)
	}
	if r.Close {
		b.WriteString("close ")
	}
	for what, list := range map[string][]session.GroupStamp{"low": r.Lows, "doubt": r.Doubts, "sealed": r.Sealed} {
		if len(list) > 0 {
			fmt.Fprint(&b, what, list, " ")
		}
	}
	if r.Group != "" {
		fmt.Fprint(&b, "take ", r.Group, r.Count, r.Ahead, r.U64, " ")
	}
	if l := r.Lock; l != nil {
		fmt.Fprintf(&b, "lock %d %s %q %v %v", l.Op, l.Name, l.Value, l.Ticket, l.Token)
	}
	return strings.TrimSpace(b.String())
}

func TestSession_CommandsAreRead(t *testing.T) {
	const none = "00000000000000000000000000000000"
	for say, want := range map[string]string{
		bindSay: "bind 255/3 4s 4s []",
		"session bind 00000000000000FF 4294967295 ttl 4000 linger 100 group g " + stampA + " " + stampB + " GROUP h " + stampB + " " + stampA: "bind 255/4294967295 4s 100ms [{g " + stampA + " " + stampB + "} {h " + stampB + " " + stampA + "}]",
		"SESSION KEEP":                 "",
		"session close":                "close",
		"SESSION KEEP LOW g " + stampA: "low[{g " + stampA + "}]",
		"SESSION KEEP SEALED sealed " + stampA + " take g 5 ahead u64": "sealed[{sealed " + stampA + "}] take g5 true true",
		"SESSION KEEP TAKE g 4294967296 DOUBT g " + stampA:             "doubt[{g " + stampA + "}] take g4294967296 false false",
		"FRONTIER TAKE g":                                "take g1 false false",
		"frontier take g ahead":                          "take g1 true false",
		"FRONTIER TAKE g 7 U64 AHEAD":                    "take g7 true true",
		"FRONTIER LOW g " + stampA:                       "low[{g " + stampA + "}]",
		"FRONTIER DOUBT g " + stampA:                     "doubt[{g " + stampA + "}]",
		"FRONTIER SEALED g " + stampA:                    "sealed[{g " + stampA + "}]",
		"LOCK ACQUIRE x":                                 `lock 2 x "" ` + none + " 0",
		"lock acquire x value v wait 0 ticket " + stampA: `lock 1 x "v" ` + stampA + " 0",
		"LOCK ACQUIRE WAIT WAIT 5":                       `lock 1 WAIT "" ` + none + " 0",
		"LOCK CANCEL x":                                  `lock 3 x "" ` + none + " 0",
		"LOCK RELEASE x 18446744073709551615":            `lock 4 x "" ` + none + " 18446744073709551615",
	} {
		s := boundTape(t, false)
		s.says(say)
		if len(s.asked) != 1 || askedText(s.asked[0]) != want || !s.paused {
			t.Errorf("%s: %q, %d asked, want %q", say, s.hears(), len(s.asked), want)
			if len(s.asked) == 1 {
				t.Error(askedText(s.asked[0]))
			}
		}
	}
	for say, want := range map[string]front.SessionWatch{
		"LOCK GET x":                           {Lock: "x"},
		"lock watch x":                         {Lock: "x", Wait: 30 * time.Second},
		"LOCK WATCH x 5":                       {Lock: "x", After: 5, Wait: 30 * time.Second},
		"LOCK WATCH x 5 wait 7":                {Lock: "x", After: 5, Wait: 7 * time.Millisecond},
		"LOCK WATCH wait WAIT 100000":          {Lock: "wait", Wait: 30 * time.Second},
		"FRONTIER BLOCKERS g":                  {Group: "g", Blockers: true},
		"LOCK LIST":                            {},
		"LOCK LIST sh":                         {Prefix: "sh"},
		"FRONTIER GET g":                       {Group: "g"},
		"FRONTIER WAIT g " + stampA:            {Group: "g", At: at, Wait: 30 * time.Second},
		"FRONTIER WAIT g " + stampA + " 40000": {Group: "g", At: at, Wait: 30 * time.Second},
		"frontier wait g " + stampA + " 0":     {Group: "g", At: at},
	} {
		s := newSessionTape(t)
		s.says(say)
		if len(s.watched) != 1 || s.open != 0 {
			t.Errorf("%s: %q", say, s.hears())
			continue
		}
		w := s.watched[0]
		if got := (front.SessionWatch{Group: w.Group, At: w.At, Lock: w.Lock, After: w.After, Prefix: w.Prefix, Blockers: w.Blockers, Wait: w.Wait}); fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("%s: %+v, want %+v", say, got, want)
		}
	}
}

func TestSession_BadCommandsDoNotDisturb(t *testing.T) {
	long := "SESSION KEEP" + strings.Repeat(" LOW g "+stampA, saidMax)
	usage := map[string]string{"SESSION": "-ERR want SESSION BIND", "LOCK": "-ERR want LOCK", "FRONTIER": "-ERR want FRONTIER"}
	for say, want := range map[string]string{
		"SESSION": "-ERR wrong number", "SESSION X": "", "SESSION BIND": "", "SESSION CLOSE now": "", "SESSION KEEP LOW": "", "SESSION KEEP LOW g": "", "SESSION KEEP UP g " + stampA: "",
		"SESSION BIND 00000000000000ff 3 TTL": "", "SESSION BIND 00000000000000ff 3 4000 5": "", "SESSION BIND ff 3 TTL 4000": "-ERR id \"ff\"", "SESSION BIND 0000000000000000 3 TTL 4000": "-ERR id",
		"SESSION BIND 00000000000000ff -1 TTL 4000": "-ERR epoch", "SESSION BIND 00000000000000ff 4294967296 TTL 4000": "-ERR epoch", "SESSION BIND 00000000000000ff 3 TTL 4s": "-ERR \"4s\"",
		"SESSION BIND 00000000000000ff 3 TTL 4000 LINGER": "", "SESSION BIND 00000000000000ff 3 TTL 4000 LINGER 1 LINGER 1": "", "SESSION BIND 00000000000000ff 3 TTL 4000 LINGER x": "-ERR \"x\"",
		"SESSION BIND 00000000000000ff 3 TTL 4000 GROUP g " + stampA: "", "SESSION BIND 00000000000000ff 3 TTL 4000 GROUP g 1 2": "-ERR timestamp \"1\"",
		"SESSION BIND 00000000000000ff 3 TTL 4000" + strings.Repeat(" GROUP g "+stampA+" "+stampA, 17): "",
		"SESSION KEEP LOW g 1": "-ERR timestamp", long + " LOW g " + stampA: "", "SESSION KEEP TAKE g": "", "SESSION KEEP TAKE g 0": "-ERR count", "SESSION KEEP TAKE g 1 TAKE g 1": "-ERR want at most one TAKE",
		"SESSION KEEP TAKE g 262145 U64": "-ERR count", "SESSION KEEP TAKE g 1 AHEAD AHEAD": "", "SESSION KEEP TAKE g 1 ahead LOW g": "",
		"FRONTIER": "-ERR wrong number", "FRONTIER TAKE": "-ERR wrong number", "FRONTIER UP g": "", "FRONTIER LOW g": "", "FRONTIER LOW g 1": "-ERR timestamp", "FRONTIER LOW g " + stampA + " x": "",
		"FRONTIER TAKE g x": "-ERR count", "FRONTIER TAKE g 1 x": "", "FRONTIER GET \"\"": "", "FRONTIER GET g x": "", "FRONTIER WAIT g": "", "FRONTIER WAIT g x": "-ERR timestamp", "FRONTIER WAIT g " + stampA + " x": "-ERR \"x\"",
		"FRONTIER WAIT g " + stampA + " 1 1": "", "FRONTIER TAKE \"\"": "",
		"LOCK": "-ERR wrong number", "LOCK X x": "", "LOCK ACQUIRE": "", "LOCK ACQUIRE \"\"": "", "LOCK ACQUIRE x WAIT": "", "LOCK ACQUIRE x WAIT x": "-ERR \"x\"", "LOCK ACQUIRE x WAIT 1 WAIT 1": "",
		"LOCK ACQUIRE x VALUE a VALUE b": "", "LOCK ACQUIRE x TICKET 5": "-ERR timestamp", "LOCK ACQUIRE x TICKET " + stampA + " TICKET " + stampA: "", "LOCK ACQUIRE x FOR 5": "",
		"LOCK CANCEL": "", "LOCK CANCEL x y": "", "LOCK RELEASE x": "", "LOCK RELEASE x y": "-ERR token", "LOCK GET": "", "LOCK GET \"\"": "", "LOCK GET x 5": "", "LOCK WATCH x 5 WAIT": "",
		"LOCK WATCH x y": "-ERR token", "LOCK WATCH x WAIT y": "-ERR \"y\"", "LOCK WATCH x 5 FOR 5": "", "LOCK WATCH x 5 WAIT 5 5": "", "LOCK LIST a b": "", "LOCK BREAK x": "", "LOCK BREAK x 1 2": "", "LOCK BREAK x y": "-ERR token", "FRONTIER BLOCKERS": "-ERR wrong number", "FRONTIER BLOCKERS g h": "",
	} {
		s := boundTape(t, false)
		s.says(say)
		s.says("PING")
		word, _, _ := strings.Cut(say, " ")
		if want == "" {
			want = usage[word]
		}
		if got := s.hears(); !strings.HasPrefix(got, want) || !strings.HasSuffix(got, "\r\n+PONG\r\n") || len(s.asked)+len(s.watched) > 0 {
			t.Errorf("%.80s: %q, want %q", say, got, want)
		}
	}
	s := boundTape(t, false)
	s.says(string(array(strings.Fields(long)...)))
	if len(s.asked) != 1 || len(s.asked[0].Lows) != saidMax {
		t.Errorf("%q", s.hears())
	}
}

func TestSession_Answers(t *testing.T) {
	bind := func(s *sessionTape) {
		s.asked[0].Reply.Frontiers = nil
		r := s.asked[0]
		s.asked = nil
		r.Reply = session.Reply{Holds: []session.Hold{{Name: "x", Token: 42}}, Frontiers: []session.GroupStamp{{Group: "g", Stamp: at}}}
		r.Done(r)
	}
	take := func(first isotone.Timestamp) func(*sessionTape) {
		return func(s *sessionTape) {
			s.asked[0].Range = isotone.Range{First: first, Count: s.asked[0].Count}
			r := s.asked[0]
			s.asked = nil
			r.Reply.Bound = isotone.Timestamp{Time: 2}
			r.Done(r)
		}
	}
	ok := func(s *sessionTape) { s.fakeSessions.answers(nil) }
	fails := func(err error) func(*sessionTape) { return func(s *sessionTape) { s.fakeSessions.answers(err) } }
	holders := func(list ...front.Holder) func(*sessionTape) {
		return func(s *sessionTape) {
			s.fakeSessions.sees(func(w *front.SessionWatch) { w.Holders, w.Frontier = list, at })
		}
	}
	shop := front.Holder{Name: "shop", Token: 42, Value: "v", Session: 255, Label: "hi"}
	blocked := func(s *sessionTape) {
		s.fakeSessions.sees(func(w *front.SessionWatch) {
			w.Blocked = []front.Blocker{{Session: 255, Label: "hi", Low: at, High: isotone.Timestamp{Time: 1, Index: 11}, For: time.Second, Connected: true}}
		})
	}
	broken := func(s *sessionTape) {
		s.asked[0].Reply.FreeAfter = 1500 * time.Millisecond
		r := s.asked[0]
		s.asked = nil
		r.Done(r)
	}
	bulkA, bulkB := "$32\r\n"+stampA+"\r\n", "$32\r\n"+stampB+"\r\n"
	const holder = "$5\r\ntoken\r\n$2\r\n42\r\n$5\r\nvalue\r\n$1\r\nv\r\n$7\r\nsession\r\n$16\r\n00000000000000ff\r\n$5\r\nlabel\r\n$2\r\nhi\r\n"
	blocker := "$7\r\nsession\r\n$16\r\n00000000000000ff\r\n$5\r\nlabel\r\n$2\r\nhi\r\n$3\r\nlow\r\n" + bulkA + "$4\r\nhigh\r\n" + bulkB + "$2\r\nms\r\n:1000\r\n$9\r\nconnected\r\n:1\r\n"
	bound := "$5\r\nholds\r\n*1\r\n*2\r\n$1\r\nx\r\n$2\r\n42\r\n$9\r\nfrontiers\r\n*1\r\n*2\r\n$1\r\ng\r\n" + bulkA
	first64 := isotone.Timestamp64From(isotone.Timestamp{Time: epoch}).Timestamp()
	second64 := (isotone.Timestamp64From(first64) + 1).Timestamp()
	for _, tt := range []struct {
		say    string
		answer func(*sessionTape)
		v2, v3 string // "": as in RESP2
	}{
		{strings.TrimSpace(bindSay), bind, "*4\r\n" + bound, "%2\r\n" + bound},
		{"SESSION KEEP", ok, "+OK\r\n", ""},
		{"SESSION CLOSE", ok, "+OK\r\n", ""},
		{"SESSION KEEP", fails(isotone.ErrSessionExpired), "-EXPIRED the session has ended\r\n", ""},
		{"SESSION KEEP", fails(isotone.ErrNotBound), "-NOTBOUND the connection has no session\r\n", ""},
		{"SESSION KEEP", fails(&isotone.Error{Code: isotone.CodeNotLeader, Leader: "b.example:8082"}), "-MOVED 0 b.example:8082\r\n", ""},
		{"SESSION KEEP", fails(&isotone.Error{Code: isotone.CodeNotLeader}), "-CLUSTERDOWN \r\n", ""},
		{"FRONTIER TAKE g 2", take(at), "*2\r\n" + bulkA + bulkB, ""},
		{"FRONTIER TAKE g 2 AHEAD", take(at), "*3\r\n" + bulkA + bulkB + "$32\r\n" + isotone.Timestamp{Time: 2}.String() + "\r\n", ""},
		{"SESSION KEEP TAKE g 2 U64", take(first64), "*2\r\n$32\r\n" + first64.String() + "\r\n$32\r\n" + second64.String() + "\r\n", ""},
		{"FRONTIER LOW g " + stampA, ok, "+OK\r\n", ""},
		{"FRONTIER GET g", holders(), bulkA, ""},
		{"FRONTIER WAIT g " + stampB + " 5", holders(), bulkA, ""},
		{"LOCK CANCEL x", ok, "+OK\r\n", ""},
		{"LOCK ACQUIRE x", fails(isotone.ErrLocked), "-LOCKED somebody else holds the lock\r\n", ""},
		{"LOCK GET shop", holders(), "$-1\r\n", "_\r\n"},
		{"LOCK GET shop", holders(shop), "*8\r\n" + holder, "%4\r\n" + holder},
		{"LOCK WATCH shop 5", holders(shop), "*8\r\n" + holder, "%4\r\n" + holder},
		{"LOCK LIST", holders(), "*0\r\n", ""},
		{"LOCK LIST", holders(shop, shop), "*2\r\n" + strings.Repeat("*10\r\n$4\r\nname\r\n$4\r\nshop\r\n"+holder, 2), "*2\r\n" + strings.Repeat("%5\r\n$4\r\nname\r\n$4\r\nshop\r\n"+holder, 2)},
		{"LOCK BREAK shop 42", broken, ":1500\r\n", ""},
		{"LOCK BREAK shop 42", fails(isotone.ErrNotHeld), "-ERR the lock is not held\r\n", ""},
		{"FRONTIER BLOCKERS g", blocked, "*1\r\n*12\r\n" + blocker, "*1\r\n%6\r\n" + blocker},
		{"LOCK GET shop", func(s *sessionTape) { s.fakeSessions.sees(func(w *front.SessionWatch) { w.Err = isotone.ErrNoLeader }) }, "-CLUSTERDOWN no leader is known\r\n", ""},
	} {
		for _, v3 := range []bool{false, true} {
			s, want := boundTape(t, v3), tt.v2
			if v3 && tt.v3 != "" {
				want = tt.v3
			}
			s.says(tt.say + "\r\nPING")
			s.now = 3 * time.Millisecond
			tt.answer(s)
			s.wants(tt.say, want+"+PONG\r\n")
			code := "ok1"
			if strings.HasPrefix(want, "-") {
				code = ""
			}
			if len(s.observed) != 1 || !strings.HasPrefix(s.observed[0], code) || !strings.HasSuffix(s.observed[0], "3ms") {
				t.Errorf("%s: observed %q", tt.say, s.observed)
			}
		}
	}
}

// TestLock_WaitsForWhatTheLeaderSays, before its answer and after. In RESP3 that is pushed as well.
func TestLock_WaitsForWhatTheLeaderSays(t *testing.T) {
	for name, tt := range map[string]struct {
		say    string
		do     func(s *sessionTape)
		v2, v3 string
	}{
		"it is free": {"LOCK ACQUIRE x", func(s *sessionTape) {
			s.tell(queued)
			s.fakeSessions.answers(nil)
			s.tell(granted(42))
		}, held2, queuedPush + grantedPush + held3},
		"the grant comes first": {"LOCK ACQUIRE x", func(s *sessionTape) {
			s.tell(queued)
			s.tell(granted(42))
			s.fakeSessions.answers(nil)
		}, held2, queuedPush + grantedPush + held3},
		"it has the lock": {"LOCK ACQUIRE x WAIT 0", func(s *sessionTape) {
			s.fakeSessions.answers(nil, session.Hold{Name: "y", Token: 1}, session.Hold{Name: "x", Token: 42})
		}, held2, held3},
		"it does not wait": {"LOCK ACQUIRE x WAIT 0", func(s *sessionTape) {
			s.fakeSessions.answers(nil)
			s.tell(queued)
		}, queued2, queuedPush + strings.ReplaceAll(queued2, "$-1", "_")},
		"another lock": {"LOCK ACQUIRE x WAIT 500", func(s *sessionTape) {
			s.tell(queued)
			s.fakeSessions.answers(nil)
			s.tell(session.Message{Kind: session.MessageGranted, Name: "y", Token: 42})
			s.timers.fire()
		}, queued2, queuedPush + strings.ReplaceAll(grantedPush, "$1\r\nx", "$1\r\ny") + strings.ReplaceAll(queued2, "$-1", "_")},
		"the answer counts": {"LOCK ACQUIRE x", func(s *sessionTape) {
			s.tell(granted(42))
			s.fakeSessions.answers(isotone.ErrSessionExpired)
		}, "-EXPIRED the session has ended\r\n", grantedPush + "-EXPIRED the session has ended\r\n"},
		"nothing is said": {"LOCK ACQUIRE x WAIT 500", func(s *sessionTape) {
			s.fakeSessions.answers(nil)
			s.timers.fire()
		}, "-TRYAGAIN the leader has not said in time what came of it; send the command again\r\n", ""},
		"the session ends": {"LOCK ACQUIRE x", func(s *sessionTape) {
			s.fakeSessions.answers(nil)
			s.tell(session.Message{Kind: session.MessageExpired})
		}, "-EXPIRED the session has ended\r\n", ">2\r\n$7\r\nsession\r\n$7\r\nexpired\r\n-EXPIRED the session has ended\r\n"},
		"it is superseded": {"LOCK ACQUIRE x", func(s *sessionTape) {
			s.fakeSessions.answers(nil)
			s.tell(session.Message{Kind: session.MessageSuperseded})
		}, "-NOTBOUND a later connection has bound the session\r\n", ">2\r\n$7\r\nsession\r\n$10\r\nsuperseded\r\n-NOTBOUND a later connection has bound the session\r\n"},
		"a release": {"LOCK RELEASE x 42", func(s *sessionTape) {
			s.tell(session.Message{Kind: session.MessageReleased, Name: "x", Token: 41})
			s.fakeSessions.answers(nil, session.Hold{Name: "x", Token: 42})
			s.tell(session.Message{Kind: session.MessageReleased, Name: "y", Token: 42})
			if got := s.hears(); strings.Contains(got, "+") {
				s.fakeSessions.t.Errorf("before it is released: %q", got)
			}
			s.conn.resp3 = false // what was pushed so far is in other cases
			s.tell(session.Message{Kind: session.MessageReleased, Name: "x", Token: 42})
		}, "+OK\r\n", ""},
		"the front stops": {"LOCK ACQUIRE x", func(s *sessionTape) {
			s.fakeSessions.answers(nil)
			s.conn.front.Stop()
		}, "-CLUSTERDOWN this node is stopping\r\n", ""},
		"the front stops before the answer": {"LOCK ACQUIRE x", func(s *sessionTape) {
			s.conn.front.Stop()
			s.fakeSessions.answers(nil)
		}, "-CLUSTERDOWN this node is stopping\r\n", ""},
	} {
		for _, v3 := range []bool{false, true} {
			s, want := boundTape(t, v3), tt.v2
			if v3 && tt.v3 != "" {
				want = tt.v3
			}
			s.says(tt.say)
			tt.do(s)
			s.wants(fmt.Sprint(name, ", ", v3), want)
			if len(s.timers.waits()) > 0 || s.conn.waiting || len(s.observed) != 1 {
				t.Errorf("%s: %d timers run, waiting: %v, observed %q", name, len(s.timers.waits()), s.conn.waiting, s.observed)
			}
		}
	}
}

// TestLock_WaitsForAQuarterOfTheTTL at most, as its session is not kept alive meanwhile.
func TestLock_WaitsForAQuarterOfTheTTL(t *testing.T) {
	for say, want := range map[string]time.Duration{
		"LOCK ACQUIRE x": time.Second, "LOCK ACQUIRE x WAIT 500": 500 * time.Millisecond, "LOCK ACQUIRE x WAIT 60000": time.Second, "LOCK RELEASE x 1": time.Second, "LOCK ACQUIRE x WAIT 0": time.Second,
	} {
		s := boundTape(t, false)
		s.says(say)
		if len(s.timers.waits()) > 0 {
			t.Errorf("%s: a timer runs before the answer", say)
		}
		s.now += 100 * time.Millisecond
		s.fakeSessions.answers(nil)
		if got := s.timers.waits(); !slices.Equal(got, []time.Duration{want - 100*time.Millisecond}) {
			t.Errorf("%s waits for %v, want %v", say, got, want)
		}
	}
}

// TestSession_MessagesArePushed between answers, each as an array of its own, and only in RESP3.
func TestSession_MessagesArePushed(t *testing.T) {
	push := func(items ...string) string {
		return strings.Replace(string(array(append([]string{"session"}, items...)...)), "*", ">", 1)
	}
	messages := map[string]session.Message{
		push("seal", "g", stampA):           {Kind: session.MessageSeal, Group: "g", Through: at},
		push("fenced", "g", stampA, stampB): {Kind: session.MessageFenced, Group: "g", Low: at, Through: isotone.Timestamp{Time: 1, Index: 11}},
		push("expired"):                     {Kind: session.MessageExpired},
		push("superseded"):                  {Kind: session.MessageSuperseded},
		push("queued", "x", stampA):         queued,
		push("granted", "x", "42"):          granted(42),
		push("released", "x", "42"):         {Kind: session.MessageReleased, Name: "x", Token: 42},
	}
	for pushed, m := range messages {
		for want, v3 := range map[string]bool{pushed: true, "": false} {
			s := boundTape(t, v3)
			s.oracle.later = true
			s.tell(m)
			s.wants("idle", want)
			s.says("TS")
			s.tell(m)
			s.wants("while a batch is under way", want)
			s.oracle.answer()
			s.wants("then", stamp(0))
			s.says("MULTI\r\nTS\r\nPING\r\nEXEC")
			s.tell(m)
			s.oracle.answer()
			s.wants("in a transaction", "+OK\r\n+QUEUED\r\n+QUEUED\r\n"+want+"*2\r\n"+stamp(1)+"+PONG\r\n")
		}
	}
}

func TestSession_ConnectionsEnd(t *testing.T) {
	for name, end := range map[string]func(s *sessionTape){
		"with the connection":          func(s *sessionTape) { s.conn.Closed(nil, nil) },
		"with RESET":                   func(s *sessionTape) { s.says("RESET") },
		"with RESET in a transaction":  func(s *sessionTape) { s.says("MULTI\r\nRESET") },
		"with CLOSE":                   func(s *sessionTape) { s.says("SESSION CLOSE"); s.fakeSessions.answers(nil) },
		"while a request is under way": func(s *sessionTape) { s.says("SESSION KEEP"); s.conn.Closed(nil, nil); s.fakeSessions.answers(nil) },
		"while it waits for a lock":    func(s *sessionTape) { s.says("LOCK ACQUIRE x"); s.fakeSessions.answers(nil); s.conn.Closed(nil, nil) },
		"while it watches": func(s *sessionTape) {
			s.says("LOCK WATCH x")
			s.conn.Closed(nil, nil)
			s.fakeSessions.sees(func(*front.SessionWatch) {})
		},
		"as the client does not read": func(s *sessionTape) {
			s.conn.resp3, s.out = true, make([]byte, pushMax)
			if s.tell(queued); s.reason != errDoesNotRead {
				t.Errorf("a client that does not read: %v", s.reason)
			}
			s.conn.Closed(nil, s.reason)
		},
		"the second, after one was closed": func(s *sessionTape) {
			s.says("RESET")
			s.feed([]byte(bindSay))
			s.fakeSessions.answers(nil)
			s.says("RESET")
		},
	} {
		s := boundTape(t, false)
		if s.open != 1 {
			t.Fatalf("%s: %d connections", name, s.open)
		}
		if end(s); s.open != 0 || len(s.timers.waits()) > 0 {
			t.Errorf("%s: %d connections are open, %d timers run", name, s.open, len(s.timers.waits()))
		}
	}
	s := boundTape(t, false)
	s.says("LOCK WATCH x")
	s.conn.front.Stop()
	s.wants("stopped", "-CLUSTERDOWN this node is stopping\r\n")
	s.fakeSessions.sees(func(*front.SessionWatch) {})
	if s.wants("the answer comes late", ""); !s.closed {
		t.Error("a front that stops leaves a connection open")
	}
}

func TestSession_NeedsOne(t *testing.T) {
	s := newSessionTape(t)
	for _, say := range []string{"SESSION KEEP", "SESSION CLOSE", "LOCK ACQUIRE x", "LOCK CANCEL x", "LOCK RELEASE x 1", "FRONTIER TAKE g", "FRONTIER LOW g " + stampA} {
		s.says(say)
		s.wants(say, "-NOTBOUND this connection has no session; send SESSION BIND first\r\n")
		s.says("MULTI\r\n" + say + "\r\nDISCARD")
		word, _, _ := strings.Cut(say, " ")
		s.wants(say, "+OK\r\n-ERR "+word+" is not allowed between MULTI and EXEC\r\n+OK\r\n")
	}
	if s.open > 0 || len(s.asked) > 0 {
		t.Errorf("%d connections, %d requests", s.open, len(s.asked))
	}
	w := newTape(t, New(Config{Backend: newOracle()}))
	for _, say := range []string{bindSay, "LOCK GET x\r\n", "FRONTIER GET g\r\n"} {
		w.feed([]byte(say))
	}
	if want := strings.Repeat("-ERR sessions are not served here; connect to a member\r\n", 3); string(w.got) != want {
		t.Errorf("%q", w.got)
	}
}
