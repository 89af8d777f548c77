package redislock

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/core/oracle"
	"github.com/isotone/isotone/internal/core/session"
)

// leader is a cluster in which all that is asked takes effect when the test says so.
type leader struct {
	t      *testing.T
	holds  map[string]oracle.Hold
	tokens isotone.Timestamp64
	asked  []func(*Keeper)
	// refuse, if not nil, is the answer to requests about locks, which have an effect nevertheless.
	refuse error
}

func newLeader(t *testing.T) *leader {
	return &leader{t: t, holds: map[string]oracle.Hold{}, tokens: 100}
}

func (l *leader) Holder(name string) (oracle.Hold, bool) {
	h, ok := l.holds[name]
	return h, ok
}

func (l *leader) Holds(id session.ID) (list []oracle.Hold) {
	for _, h := range l.holds {
		if session.ID(h.Session) == id {
			list = append(list, h)
		}
	}
	slices.SortFunc(list, func(a, b oracle.Hold) int { return strings.Compare(a.Name, b.Name) })
	return list
}

func (l *leader) Ask(q session.Request, done func(error)) {
	l.asked = append(l.asked, func(k *Keeper) {
		m, err := l.takes(q.Lock)
		if err == nil && q.Lock != nil {
			err = l.refuse
		}
		done(err)
		if m.Kind != 0 {
			k.Told(m)
		}
	})
}

// takes carries out what is asked about a lock.
func (l *leader) takes(q *session.LockRequest) (m session.Message, err error) {
	if q == nil {
		return m, nil
	}
	h, held := l.holds[q.Name]
	switch m.Name = q.Name; {
	case q.Op == session.LockTry && held:
		return session.Message{}, isotone.ErrLocked
	case q.Op == session.LockTry:
		l.tokens++
		l.holds[q.Name] = oracle.Hold{Name: q.Name, Session: uint64(SessionID), Token: l.tokens, Value: q.Value}
		m.Kind, m.Token = session.MessageGranted, l.tokens
	case q.Op == session.LockRelease:
		if held && h.Token == q.Token {
			delete(l.holds, q.Name)
		}
		m.Kind, m.Token = session.MessageReleased, q.Token
	case q.Op == session.LockCancel:
		m.Kind = session.MessageReleased
	}
	return m, nil
}

// step has everything that is asked take effect.
func (l *leader) step(k *Keeper) {
	for len(l.asked) > 0 {
		next := l.asked[0]
		l.asked = l.asked[1:]
		next(k)
	}
}

// rig is a keeper with its leader.
type rig struct {
	*leader
	*Keeper
	at  time.Duration
	era uint64
}

func newRig(t *testing.T) *rig {
	r := &rig{leader: newLeader(t)}
	r.Keeper = NewKeeper(r.leader)
	r.elect()
	return r
}

// elect has another process lead, which knows the log only.
func (r *rig) elect() {
	r.era++
	r.asked = nil
	r.Keeper = NewKeeper(r.leader)
	r.wait(0)
}

func (r *rig) wait(d time.Duration) {
	r.at += d
	r.Leads(r.era, r.at)
	r.step(r.Keeper)
}

// begins asks, and returns where the error will be: errOpen until it is known.
func (r *rig) begins(q *Request) *error {
	r.t.Helper()
	got := errOpen
	if err := r.Keeper.Ask(q, func(err error) { got = err }); err != nil {
		got = err
	}
	return &got
}

var errOpen = errors.New("not answered")

func (r *rig) does(q Request) *Request {
	r.t.Helper()
	err := r.begins(&q)
	r.step(r.Keeper)
	if *err != nil {
		r.t.Fatalf("%+v: %v", q, *err)
	}
	return &q
}

func (r *rig) wants(what string, q Request, done bool) {
	r.t.Helper()
	if got := r.does(q); got.Done != done {
		r.t.Errorf("%s, after %v: done: %v", what, r.at, got.Done)
	}
}

const ms = time.Millisecond

func obtain(value string, ttl time.Duration) Request {
	return Request{Op: Obtain, Name: "x", Value: value, TTL: ttl}
}

func refresh(value string, ttl time.Duration) Request {
	return Request{Op: Refresh, Name: "x", Value: value, TTL: ttl}
}

func read() Request { return Request{Op: Read, Name: "x", Any: true} }

func TestKeeper_ALockEndsForItsHolderBeforeItIsFree(t *testing.T) {
	r := newRig(t)
	r.wants("a", obtain("a", 90*ms), true)
	r.wants("b", obtain("b", 90*ms), false)
	r.wait(50 * ms)
	r.wants("a refreshes", refresh("a", 90*ms), true)
	r.wait(89 * ms)
	if q := r.does(read()); !q.Held || q.Reply.Value != "a" || q.Left != ms || q.Forever || q.Token != 101 {
		t.Errorf("after 89 ms: %+v", q)
	}
	r.wait(ms)
	if q := r.does(read()); q.Held {
		t.Errorf("after 90 ms: %+v", q)
	}
	r.wants("a refreshes what has ended", refresh("a", 90*ms), false)
	r.wants("b takes what is not free yet", obtain("b", 90*ms), false)
	r.wait(19 * ms)
	r.wants("b takes what is not free yet", obtain("b", 90*ms), false)
	r.wait(ms)
	r.wants("b takes it 110 ms after the refresh", obtain("b", 90*ms), true)
	if q := r.does(Request{Op: Read, Name: "x", Value: "b"}); !q.Done || q.Token <= 101 {
		t.Errorf("b: %+v", q)
	}
}

func TestKeeper_Operations(t *testing.T) {
	set := Request{Op: Set, Name: "x", Value: "b", TTL: time.Second}
	again := Request{Op: ObtainAgain, Name: "x", Value: "ab2", Prefix: 2, TTL: time.Second}
	for name, tt := range map[string]struct {
		held  string // ab, for 10 s; or nobody, or for ever
		do    Request
		done  bool
		value string // afterwards
		left  time.Duration
	}{
		"obtain":                       {"", obtain("b", time.Second), true, "b", time.Second},
		"obtain for ever":              {"", obtain("b", 0), true, "b", 0},
		"obtain what is held":          {"ab", obtain("b", time.Second), false, "ab", 10 * time.Second},
		"obtain what one has":          {"ab", obtain("ab", time.Second), false, "ab", 10 * time.Second},
		"set":                          {"", set, true, "b", time.Second},
		"set what is held":             {"ab", set, true, "b", time.Second},
		"again":                        {"", again, true, "ab2", time.Second},
		"again, the same holder":       {"ab", again, true, "ab2", time.Second},
		"again, another holder":        {"ax", again, false, "ax", 10 * time.Second},
		"again, with a short value":    {"a", again, false, "a", 10 * time.Second},
		"obtain or refresh, free":      {"", Request{Op: ObtainOrRefresh, Name: "x", Value: "b", TTL: time.Second}, true, "b", time.Second},
		"obtain or refresh, held":      {"ab", Request{Op: ObtainOrRefresh, Name: "x", Value: "b", TTL: time.Second}, false, "ab", 10 * time.Second},
		"obtain or refresh, the same":  {"ab", Request{Op: ObtainOrRefresh, Name: "x", Value: "ab", TTL: time.Second}, true, "ab", time.Second},
		"delete":                       {"ab", Request{Op: Delete, Name: "x", Value: "ab"}, true, "", 0},
		"delete, another":              {"ab", Request{Op: Delete, Name: "x", Value: "a"}, false, "ab", 10 * time.Second},
		"delete, whoever":              {"ab", Request{Op: Delete, Name: "x", Any: true}, true, "", 0},
		"delete what is free":          {"", Request{Op: Delete, Name: "x", Any: true}, false, "", 0},
		"refresh":                      {"ab", refresh("ab", time.Second), true, "ab", time.Second},
		"refresh for longer":           {"ab", refresh("ab", time.Minute), true, "ab", time.Minute},
		"refresh, another":             {"ab", refresh("b", time.Minute), false, "ab", 10 * time.Second},
		"refresh for no time":          {"ab", refresh("ab", 0), true, "", 0},
		"refresh what has no end":      {"for ever", refresh("for ever", time.Minute), true, "for ever", time.Minute},
		"extend":                       {"ab", Request{Op: Extend, Name: "x", Value: "ab", TTL: time.Second}, true, "ab", 11 * time.Second},
		"extend backwards":             {"ab", Request{Op: Extend, Name: "x", Value: "ab", TTL: -9 * time.Second}, true, "ab", time.Second},
		"extend backwards beyond zero": {"ab", Request{Op: Extend, Name: "x", Value: "ab", TTL: -time.Minute}, true, "", 0},
		"extend what has no end":       {"for ever", Request{Op: Extend, Name: "x", Value: "for ever", TTL: time.Second}, false, "for ever", 0},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			if tt.held != "" {
				ttl := 10 * time.Second
				if tt.held == "for ever" {
					ttl = 0
				}
				r.wants("before", obtain(tt.held, ttl), true)
			}
			r.wants("it", tt.do, tt.done)
			q := r.does(read())
			if q.Held != (tt.value != "") || q.Reply.Value != tt.value || q.Left != tt.left || q.Forever != (q.Held && tt.left == 0) {
				t.Errorf("afterwards: %+v", q)
			}
			// The leader of the next term knows it as well, but for a time that became shorter.
			r.elect()
			if next := r.does(read()); next.Held != q.Held || next.Reply.Value != q.Reply.Value || next.Token != q.Token || next.Forever != q.Forever || next.Left < q.Left {
				t.Errorf("the next leader: %+v, want %+v", next, q)
			}
			r.wait(2 * time.Minute)
			r.does(Request{Op: Delete, Name: "x", Any: true})
			r.wait(sweepInterval)
			if len(r.holds) != 0 {
				t.Errorf("when the lock is free, there is left: %v", r.holds)
			}
		})
	}
}

func TestKeeper_ALockOfASessionIsLeftAlone(t *testing.T) {
	r := newRig(t)
	r.holds["x"] = oracle.Hold{Name: "x", Session: 7, Token: 9, Value: "v"}
	if q := r.does(read()); !q.Held || q.Reply.Value != "v" || !q.Forever {
		t.Errorf("%+v", q)
	}
	r.wants("obtain", obtain("v", time.Second), false)
	r.wants("compare", Request{Op: Read, Name: "x", Value: "v"}, false)
	r.wants("refresh", refresh("v", time.Second), false)
	r.wants("delete", Request{Op: Delete, Name: "x", Value: "v"}, false)
	for _, q := range []Request{{Op: Delete, Name: "x", Any: true}, {Op: Set, Name: "x", Value: "a"}} {
		err := r.begins(&q)
		if r.step(r.Keeper); !errors.Is(*err, isotone.ErrLocked) {
			t.Errorf("%+v: %v", q, *err)
		}
	}
	if len(r.holds) != 1 || r.holds["x"].Session != 7 {
		t.Errorf("it is held by %v", r.holds)
	}
}

// TestKeeper_WhatIsNotCommittedInTimeIsNotHeld: a lock that nobody was told of is freed, whenever it is granted, and others can have it.
func TestKeeper_WhatIsNotCommittedInTimeIsNotHeld(t *testing.T) {
	for name, end := range map[string]func(r *rig, claim func(*Keeper)){
		"it is never granted":              func(r *rig, _ func(*Keeper)) { r.step(r.Keeper) },
		"it is granted, then cancelled":    func(r *rig, claim func(*Keeper)) { claim(r.Keeper); r.step(r.Keeper) },
		"it is cancelled, then granted":    func(r *rig, claim func(*Keeper)) { r.step(r.Keeper); claim(r.Keeper) },
		"the leader had no room, it seems": func(r *rig, claim func(*Keeper)) { r.refuse = isotone.ErrOverloaded; claim(r.Keeper) },
	} {
		r := newRig(t)
		r.does(read())
		q := obtain("a", 0)
		err := r.begins(&q)
		round := r.asked[0]
		r.asked = nil
		round(r.Keeper)
		claim := r.asked[0]
		r.asked = nil
		r.at += requestMax
		r.Leads(r.era, r.at)
		if !errors.Is(*err, isotone.ErrDeadlineExceeded) {
			t.Fatalf("%s: a request that was not committed: %v", name, *err)
		}
		end(r, claim)
		r.refuse = nil
		r.wait(sweepInterval)
		if len(r.holds) != 0 {
			t.Errorf("%s: it is held: %v", name, r.holds)
		}
		r.wants(name+": the next one", obtain("b", 0), true)
	}
}

func TestKeeper_AnOperatorBreaksALock(t *testing.T) {
	r := newRig(t)
	other := Request{Op: Obtain, Name: "y", Value: "b"}
	r.wants("a", obtain("a", 90*ms), true)
	r.wants("another lock", other, true)
	r.wants("break another token", Request{Op: Break, Name: "x", Of: 100}, false)
	if q := r.does(Request{Op: Break, Name: "x", Of: 101}); !q.Done || q.Left != 110*ms {
		t.Errorf("break: done %v, and free in %v", q.Done, q.Left)
	}
	r.wants("a refreshes", refresh("a", 90*ms), false)
	r.wait(109 * ms)
	r.wants("b, while a may believe in it", obtain("b", 90*ms), false)
	r.wait(ms)
	r.wants("b", obtain("b", 90*ms), true)
	r.wants("another lock is held still", other, false)
	if q := r.does(Request{Op: Break, Name: "y", Of: 102}); !q.Done || q.Left != 0 {
		t.Errorf("break what has no end: done %v, and free in %v", q.Done, q.Left)
	}
	r.wait(0)
	r.wants("it is free at once", other, true)
}

// TestKeeper_AGrantIsForWhoAskedForIt: one that comes too late, when another client waits for the lock, has the value and the time of the first.
func TestKeeper_AGrantIsForWhoAskedForIt(t *testing.T) {
	r := newRig(t)
	a, b := obtain("a", 90*ms), obtain("b", time.Hour)
	r.does(read()) // the session is bound
	first := r.begins(&a)
	r.asked[0](r.Keeper) // its round
	claim := r.asked[1]  // is in the log, and not applied
	r.asked = nil
	r.wait(3 * time.Second)
	second := r.begins(&b)
	r.step(r.Keeper)
	r.at += 3 * time.Second
	r.Leads(r.era, r.at)
	for len(r.changes) > 0 && r.changes["x"].Value == encode(a.TTL, a.Value) { // until the first is cancelled
		next := r.asked[0]
		r.asked = r.asked[1:]
		next(r.Keeper)
	}
	r.asked = nil // the session is told of what it has claimed
	claim(r.Keeper)
	if !errors.Is(*first, isotone.ErrDeadlineExceeded) {
		t.Errorf("the first: %v", *first)
	}
	if *second != nil || b.Done {
		t.Errorf("the second: %v, done: %v, while the log has %q", *second, b.Done, r.holds["x"].Value)
	}
	r.wait(sweepInterval)
	r.wants("once nobody has it", obtain("b", time.Hour), true)
	r.elect()
	if q := r.does(read()); q.Reply.Value != "b" {
		t.Errorf("the next leader: %+v", q)
	}
}

// What is left of a time is no whole number of milliseconds, and the log has no less of it than the client was told.
func TestKeeper_ExtensionsAreRecordedInFull(t *testing.T) {
	r := newRig(t)
	r.wants("a", obtain("a", 100*ms), true)
	r.wait(ms / 3)
	r.wants("extend", Request{Op: Extend, Name: "x", Value: "a", TTL: time.Second}, true)
	told := r.does(read()).Left
	r.elect()
	if q := r.does(read()); q.Left < told {
		t.Errorf("the next leader: %v, after %v", q.Left, told)
	}
}

// A client with a slow clock has 46 of 90 ms left when 54 have passed on the leader, and believes in the lock for 136 ms by that clock once it is extended by 90.
func TestKeeper_AnExtensionCountsFromWhatTheClientHasLeft(t *testing.T) {
	r := newRig(t)
	r.wants("a", obtain("a", 90*ms), true)
	r.wait(54 * ms)
	r.wants("extend", Request{Op: Extend, Name: "x", Value: "a", TTL: 90 * ms}, true)
	r.wait(166 * ms)
	r.wants("b, while a may believe in it", obtain("b", 90*ms), false)
	r.wait(ms)
	r.wants("b", obtain("b", 90*ms), true)
}

// A leader that is deposed has no round confirmed, and so answers nothing.
func TestKeeper_EachRequestWaitsForARound(t *testing.T) {
	r := newRig(t)
	r.wants("a", obtain("a", time.Hour), true)
	for _, q := range []Request{read(), obtain("b", time.Hour), refresh("a", time.Minute), {Op: Delete, Name: "x", Value: "b"}, {Op: Break, Name: "x", Of: 101}} {
		err := r.begins(&q)
		if *err != errOpen || len(r.asked) != 1 {
			t.Errorf("%+v: %v, and %d requests to the leader", q, *err, len(r.asked))
		}
		r.step(r.Keeper)
	}
}

func TestKeeper_EndsWithTheTerm(t *testing.T) {
	r := newRig(t)
	r.wants("a", obtain("a", time.Second), true)
	one, two := read(), obtain("b", time.Second)
	first, second := r.begins(&one), r.begins(&two)
	r.Stop(isotone.ErrNotLeader)
	for _, err := range []*error{first, second} {
		if !errors.Is(*err, isotone.ErrNotLeader) {
			t.Errorf("open when the term ends: %v", *err)
		}
	}
	r.step(r.Keeper) // late answers have no effect
	if err := r.begins(&one); !errors.Is(*err, isotone.ErrNoLeader) {
		t.Errorf("after the term: %v", *err)
	}
}

func TestRequest_Check(t *testing.T) {
	long := strings.Repeat("k", 129)
	for name, q := range map[string]Request{
		"no key": {Op: Read}, "a long key": {Op: Read, Name: long}, "a key of amendments": {Op: Obtain, Name: ReservedPrefix + "1:1", Value: "a"}, "no value": {Op: Obtain, Name: "x"},
		"a long value": obtain(long[:113], 0), "a time below zero": obtain("a", -ms), "a long time": refresh("a", TTLMax+ms), "a fraction of a millisecond": obtain("a", time.Microsecond),
	} {
		if err := q.Check(); !errors.Is(err, isotone.ErrInvalidArgument) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, q := range []Request{obtain(long[:112], TTLMax), {Op: Read, Name: long[:128]}, refresh("", -TTLMax), {Op: Delete, Name: "x"}} {
		if err := q.Check(); err != nil {
			t.Errorf("%+v: %v", q, err)
		}
	}
}

// TestKeeper_NobodyLosesALockBeforeItsTime has clients do anything, with leaders that die at any time, and demands that nobody gets a lock within the time that another client was told.
func TestKeeper_NobodyLosesALockBeforeItsTime(t *testing.T) {
	for seed := range uint64(300) {
		r, rnd := newRig(t), rand.New(rand.NewPCG(seed, 1))
		until, holder := time.Duration(0), ""
		grants := 0
		for range 400 {
			switch n := rnd.IntN(20); {
			case n == 0:
				r.elect()
				continue
			case n < 8:
				r.wait(time.Duration(rnd.IntN(60)) * ms)
				continue
			}
			q := Request{Op: Op(rnd.IntN(int(Extend)) + 1), Name: "x", Value: fmt.Sprint("client", rnd.IntN(3)), TTL: time.Duration(rnd.IntN(200)+1) * ms, Prefix: 7}
			if q.Op == Set {
				continue
			}
			began := r.at
			err := r.begins(&q)
			for range rnd.IntN(4) { // some of what it takes, then perhaps another leader
				if len(r.asked) > 0 {
					next := r.asked[0]
					r.asked = r.asked[1:]
					next(r.Keeper)
				}
			}
			if rnd.IntN(10) == 0 {
				if q.Op == Delete && q.Value == holder && *err == errOpen {
					until = 0 // it may have been freed
				}
				r.elect()
				if *err == errOpen {
					continue
				}
			}
			if r.step(r.Keeper); *err != nil || !q.Done {
				continue
			}
			if began < until && q.Value != holder && q.Op != Read {
				t.Fatalf("seed %d: %s gets at %v what %s has until %v: %+v", seed, q.Value, began, holder, until, q)
			}
			switch q.Op {
			case Read:
			case Delete:
				until, holder = 0, ""
			case Extend:
				until, holder = began+q.TTL+q.Left, q.Value
				grants++
			default:
				until, holder = began+q.TTL, q.Value
				grants++
			}
		}
		if grants < 10 {
			t.Fatalf("seed %d: only %d grants", seed, grants)
		}
	}
}
