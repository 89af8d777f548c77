package session_test

import (
	"slices"
	"testing"
	"time"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/core/session"
)

// The simulator in internal/core/sim runs clients through all faults. These tests are about what does not happen there.

const clientTTL = time.Second

// boundClient returns a client that a leader has bound at 0.
func boundClient(t *testing.T, groups ...string) *session.Client {
	t.Helper()
	c := session.NewClient(1, clientTTL, clientTTL, groups...)
	c.Connected()
	bindClient(t, c, 0)
	return c
}

func bindClient(t *testing.T, c *session.Client, now time.Duration, holds ...session.Hold) {
	t.Helper()
	k := c.Next(now)
	if k == nil || k.Bind == nil || c.Next(now) != nil {
		t.Fatal("a client that is connected does not bind")
	}
	k.Reply = session.Reply{Outcome: session.Alive, Holds: holds}
	c.Answered(k, now)
}

// answered has the next request answered, and returns it.
func answered(t *testing.T, c *session.Client, now time.Duration, err *isotone.Error, reply session.Reply) *session.Call {
	t.Helper()
	k := c.Next(now)
	if k == nil {
		t.Fatalf("nothing is said at %v", now)
	}
	k.Err, k.Reply, k.Range = err, reply, isotone.Range{First: isotone.Timestamp{Time: 5}, Count: k.Count}
	c.Answered(k, now)
	return k
}

var alive = session.Reply{Outcome: session.Alive}

func kinds(c *session.Client) (list []session.EventKind) {
	for _, e := range c.Events() {
		list = append(list, e.Kind)
	}
	return list
}

func wantKinds(t *testing.T, c *session.Client, want ...session.EventKind) {
	t.Helper()
	if got := kinds(c); !slices.Equal(got, want) {
		t.Errorf("events %v, want %v", got, want)
	}
}

func TestClient_KeepsItselfAlive(t *testing.T) {
	c := boundClient(t)
	if c.Next(clientTTL/4-1) != nil || c.NextAt(0) != clientTTL/4 || c.IsSilent(clientTTL) {
		t.Error("it says something before a quarter of its TTL has passed, or takes a connection for silent that is not")
	}
	k := c.Next(clientTTL / 4)
	if k == nil || c.NextAt(clientTTL/4) != clientTTL/2 || c.IsSilent(clientTTL/2) || !c.IsSilent(clientTTL/2+1) {
		t.Fatal("it says nothing, or does not notice that nothing comes back")
	}
	k.Reply = alive
	if c.Answered(k, clientTTL); c.Valid() != clientTTL/4+clientTTL {
		t.Errorf("it believes until %v", c.Valid())
	}
	if c.Answered(k, 2*clientTTL); c.Valid() != clientTTL/4+clientTTL {
		t.Error("an answer counts twice")
	}
}

func TestClient_KeepsItselfAliveAtOnce(t *testing.T) {
	c := boundClient(t)
	c.Keep()
	answered(t, c, 5, nil, alive)
	if c.Valid() != 5+clientTTL || c.Next(6) != nil {
		t.Errorf("it believes until %v, or says more", c.Valid())
	}
}

func TestClient_AsksAgainAfterAWhile(t *testing.T) {
	c := boundClient(t, "orders")
	now := time.Duration(0)
	for _, ask := range []func(){
		func() { c.Acquire("x", "", false) },
		func() { c.Acquire("y", "", true) },
		func() { c.Take("orders", 3, false, false) },
	} {
		ask()
		first := *answered(t, c, now, isotone.ErrOverloaded, session.Reply{})
		if c.Next(now+time.Millisecond) != nil || c.NextAt(now) >= now+clientTTL/4 {
			t.Error("it does not wait")
		}
		now = c.NextAt(now)
		again := *answered(t, c, now, nil, alive)
		if first.Count != again.Count || (first.Lock == nil) != (again.Lock == nil) || first.Lock != nil && *first.Lock != *again.Lock {
			t.Errorf("first %+v, then %+v", first.Request, again.Request)
		}
	}
}

func TestClient_AsksNothingAgainThatIsNotWanted(t *testing.T) {
	c := boundClient(t)
	c.Acquire("x", "", false)
	k := c.Next(0)
	c.Release("x")
	k.Err = isotone.ErrOverloaded
	c.Answered(k, 0)
	if k := c.Next(clientTTL / 10); k == nil || k.Lock == nil || k.Lock.Op != session.LockCancel || c.Next(clientTTL/10) != nil {
		t.Errorf("it says %+v", k)
	}
	wantKinds(t, c)
}

func TestClient_IsRefused(t *testing.T) {
	c := boundClient(t, "orders")
	c.Acquire("x", "", false)
	answered(t, c, 0, isotone.ErrForbidden, session.Reply{})
	wantKinds(t, c, session.EventRefused)
	c.Take("orders", 1, false, false)
	answered(t, c, 0, isotone.ErrInvalidArgument, session.Reply{})
	wantKinds(t, c, session.EventRefused)
	c.Acquire("x", "", true)
	answered(t, c, 0, nil, session.Reply{Outcome: session.Locked})
	wantKinds(t, c, session.EventLocked)
	c.Take("orders", 1, false, false)
	answered(t, c, 0, isotone.ErrNoLeader, session.Reply{})
	wantKinds(t, c, session.EventDisconnect)
	c.Disconnected()
	c.Connected()
	answered(t, c, 0, isotone.ErrForbidden, session.Reply{})
	wantKinds(t, c, session.EventEnded)
	if c.Connected(); c.Next(0) != nil || !c.IsEnded() {
		t.Error("it goes on")
	}
}

func TestClient_LosesWhatIsReleased(t *testing.T) {
	c := boundClient(t)
	c.Acquire("x", "", false)
	answered(t, c, 0, nil, alive)
	c.Told(session.Message{Kind: session.MessageGranted, Name: "x", Token: 7})
	if token, ok := c.Token("x", clientTTL-1); token != 7 || !ok {
		t.Errorf("it holds %v, %v", token, ok)
	}
	c.Told(session.Message{Kind: session.MessageReleased, Name: "x", Token: 7})
	wantKinds(t, c, session.EventGranted, session.EventLost)
	if _, ok := c.Token("x", 0); ok {
		t.Error("it believes in what it has lost")
	}
	c.Acquire("x", "", false)
	if answered(t, c, 0, nil, alive).Lock == nil {
		t.Error("it does not ask again")
	}
}

// TestClient_ReleasesAgain what it has released over a connection that broke, before it acquires the lock once more.
func TestClient_ReleasesAgain(t *testing.T) {
	c := boundClient(t)
	c.Acquire("x", "", false)
	answered(t, c, 0, nil, session.Reply{Outcome: session.Alive, Holds: []session.Hold{{Name: "x", Token: 7}}})
	c.Release("x")
	c.Next(0)
	c.Disconnected()
	c.Acquire("x", "v", false)
	c.Connected()
	bindClient(t, c, 0, session.Hold{Name: "x", Token: 7}, session.Hold{Name: "of nobody", Token: 8})
	var ops []session.LockOp
	for k := c.Next(0); k != nil; k = c.Next(0) {
		ops = append(ops, k.Lock.Op)
	}
	if want := []session.LockOp{session.LockRelease, session.LockRelease, session.LockAcquire}; !slices.Equal(ops, want) {
		t.Errorf("it asks for %v, want %v", ops, want)
	}
	c.Told(session.Message{Kind: session.MessageReleased, Name: "x", Token: 7})
	c.Told(session.Message{Kind: session.MessageGranted, Name: "x", Token: 9})
	wantKinds(t, c, session.EventGranted, session.EventReleased, session.EventGranted)
}

func TestClient_Closes(t *testing.T) {
	c := boundClient(t)
	c.Acquire("x", "", false)
	answered(t, c, 0, nil, session.Reply{Outcome: session.Alive, Holds: []session.Hold{{Name: "x", Token: 7}}})
	c.Acquire("y", "", false)
	c.Close()
	c.Close()
	if token, ok := c.Token("x", 0); ok {
		t.Errorf("it believes in %v, which the leader may free", token)
	}
	wantKinds(t, c, session.EventGranted, session.EventLost)
	k := c.Next(0)
	if k == nil || !k.Close || c.Next(clientTTL/4) != nil {
		t.Fatalf("it says %+v, and then more", k)
	}
	c.Told(session.Message{Kind: session.MessageGranted, Name: "y", Token: 9})
	c.Acquire("z", "", false)
	k.Reply.Outcome = session.Expired
	c.Answered(k, 0)
	wantKinds(t, c, session.EventEnded)
}

// TestClient_ClosesAgain: what said so is lost with the connection, or is refused.
func TestClient_ClosesAgain(t *testing.T) {
	c := boundClient(t)
	c.Close()
	if k := answered(t, c, 0, isotone.ErrOverloaded, session.Reply{}); !k.Close {
		t.Fatalf("it says %+v", k.Request)
	}
	if k := c.Next(0); k != nil {
		t.Fatalf("it says at once %+v", k)
	}
	if k := c.Next(20 * time.Millisecond); k == nil || !k.Close {
		t.Fatalf("a while after a refusal it says %+v", k)
	}
	c.Disconnected()
	c.Connected()
	bindClient(t, c, 0, session.Hold{Name: "x", Token: 7})
	if k := answered(t, c, 0, nil, session.Reply{Outcome: session.Expired}); !k.Close {
		t.Fatalf("over another connection it says %+v", k.Request)
	}
	wantKinds(t, c, session.EventEnded)
}

// TestClient_DecidesBeforeItCloses: so its group has no hole that somebody has to seal.
func TestClient_DecidesBeforeItCloses(t *testing.T) {
	c := boundClient(t, "g")
	c.Take("g", 1, false, false)
	k := answered(t, c, 0, nil, alive)
	c.Done("g", k.Range.First)
	c.Take("g", 1, false, false)
	k = c.Next(0)
	c.Close()
	if c.Next(0) != nil {
		t.Error("it closes while stamps are on their way")
	}
	k.Reply, k.Range = alive, isotone.Range{First: isotone.Timestamp{Time: 9}, Count: 1}
	c.Answered(k, 0)
	if c.MayWrite("g", k.Range.First) {
		t.Error("a session that is being closed writes")
	}
	if low := c.Next(0); low == nil || low.Close || len(low.Lows) != 1 || !k.Range.First.Before(low.Lows[0].Stamp) {
		t.Errorf("it says %+v", low)
	}
	if k := c.Next(0); k == nil || !k.Close {
		t.Errorf("and then %+v", k)
	}
}

// TestClient_SaysAgainWhatIsRefused: a node that refuses a request for its rate has not heard what is decided.
func TestClient_SaysAgainWhatIsRefused(t *testing.T) {
	c := boundClient(t, "g")
	c.Take("g", 2, false, false)
	k := answered(t, c, 0, nil, alive)
	c.Done("g", k.Range.First)
	c.Doubt("g", isotone.Timestamp{Time: 5, Index: 1})
	c.Sealed("h", isotone.Timestamp{Time: 3})
	said := answered(t, c, 0, isotone.ErrQuotaExceeded, session.Reply{})
	if c.Next(0) != nil {
		t.Error("it says it again at once")
	}
	again := c.Next(20 * time.Millisecond)
	if again == nil || len(said.Lows) != 1 || !slices.Equal(again.Lows, said.Lows) || !slices.Equal(again.Doubts, said.Doubts) || len(said.Doubts) != 1 || !slices.Equal(again.Sealed, said.Sealed) || len(said.Sealed) != 1 {
		t.Errorf("it says %+v, and again %+v", said, again)
	}
}

// TestClient_KeepsWhatItMayNotRelease: until it is told otherwise, the session holds it, and gets it again at once.
func TestClient_KeepsWhatItMayNotRelease(t *testing.T) {
	c := boundClient(t)
	hold := session.Reply{Outcome: session.Alive, Holds: []session.Hold{{Name: "x", Token: 7}}}
	c.Acquire("x", "", false)
	answered(t, c, 0, nil, hold)
	c.Release("x")
	k := c.Next(0)
	c.Acquire("x", "", false)
	k.Err = isotone.ErrForbidden
	c.Answered(k, 0)
	answered(t, c, 0, nil, hold)
	if token, ok := c.Token("x", 0); !ok || token != 7 {
		t.Errorf("it has %v, %v", token, ok)
	}
	wantKinds(t, c, session.EventGranted, session.EventRefused, session.EventGranted)
}

// TestClient_ReleasesWhileItPauses: over a limit it releases, asks for nothing, and forgets what it does not want any more.
func TestClient_ReleasesWhileItPauses(t *testing.T) {
	c := boundClient(t)
	c.Acquire("x", "", false)
	answered(t, c, 0, nil, session.Reply{Outcome: session.Alive, Holds: []session.Hold{{Name: "x", Token: 7}}})
	c.Acquire("y", "", false)
	answered(t, c, 0, isotone.ErrQuotaExceeded, session.Reply{})
	c.Release("x")
	if k := c.Next(0); k == nil || k.Lock.Op != session.LockRelease {
		t.Fatalf("it says %+v", k)
	}
	c.Release("y")
	if k := c.Next(20 * time.Millisecond); k != nil {
		t.Errorf("it says %+v", k.Lock)
	}
}

func TestClient_IsFenced(t *testing.T) {
	c := boundClient(t, "orders")
	c.Take("orders", 3, false, false)
	k := c.Next(0)
	k.Reply, k.Range = alive, isotone.Range{First: isotone.Timestamp{Time: 5}, Count: 3}
	c.Answered(k, 0)
	at := func(i uint64) isotone.Timestamp { return isotone.Timestamp{Time: 5, Index: i} }
	c.Doubt("orders", at(1))
	c.Told(session.Message{Kind: session.MessageFenced, Group: "orders", Low: at(0), Through: at(1)})
	if c.MayWrite("orders", at(0)) || c.MayWrite("orders", at(1)) || !c.MayWrite("orders", at(2)) {
		t.Error("it may write what is fenced")
	}
	if k := c.Next(0); k == nil || len(k.Doubts) > 0 || len(k.Lows) != 1 || k.Lows[0].Stamp != at(2) {
		t.Errorf("it says %+v", k)
	}
	c.Done("orders", at(2))
	if k := c.Next(0); k == nil || k.Lows[0].Stamp != at(3) {
		t.Errorf("it says %+v", k)
	}
}

// TestClient_BoundsWhatItSays, and says the rest later.
func TestClient_BoundsWhatItSays(t *testing.T) {
	c := boundClient(t, "orders")
	c.Take("orders", 40, false, false)
	k := c.Next(0)
	k.Reply, k.Range = alive, isotone.Range{First: isotone.Timestamp{Time: 5}, Count: 40}
	c.Answered(k, 0)
	for i := range uint64(40) {
		c.Doubt("orders", isotone.Timestamp{Time: 5, Index: i})
		c.Sealed("orders", isotone.Timestamp{Time: 1, Index: i})
	}
	var doubts, sealed int
	for n := 0; n < 100; n++ {
		k := c.Next(0)
		if k == nil {
			break
		}
		if len(k.Doubts) > 16 || len(k.Sealed) > 16 {
			t.Fatalf("it says %d doubts and %d seals at once", len(k.Doubts), len(k.Sealed))
		}
		doubts, sealed = doubts+len(k.Doubts), sealed+len(k.Sealed)
		k.Reply = alive
		c.Answered(k, 0)
	}
	if doubts != 40 || sealed != 40 {
		t.Errorf("it has said %d doubts and %d seals", doubts, sealed)
	}
}

// TestClient_MakesStampsUpToItsBound, and none that it has given up.
func TestClient_MakesStampsUpToItsBound(t *testing.T) {
	c := boundClient(t, "orders")
	own := func(time uint64) isotone.Timestamp { return isotone.Timestamp{Time: time, Index: 1 << 63} }
	take := func(time, bound uint64) {
		c.Take("orders", 1, bound > 0, false)
		k := c.Next(0)
		if k.Reply, k.Range = alive, (isotone.Range{First: isotone.Timestamp{Time: time}, Count: 1}); bound > 0 {
			k.Reply.Bound = own(bound)
		}
		c.Answered(k, 0)
	}
	take(10, 0)
	if c.Make("orders", own(10)) {
		t.Error("it makes one without a bound")
	}
	if take(20, 40); !c.Make("orders", own(30)) || c.Make("orders", own(41)) || c.Make("orders", own(19)) {
		t.Error("it makes others than those within its bound")
	}
	c.Done("orders", isotone.Timestamp{Time: 10})
	c.Done("orders", isotone.Timestamp{Time: 20})
	c.Done("orders", own(30))
	if k := c.Next(0); k == nil || len(k.Lows) != 1 || !own(40).Before(k.Lows[0].Stamp) {
		t.Fatalf("it does not give up what it may still write: %+v", k)
	}
	if take(35, 0); c.Make("orders", own(38)) {
		t.Error("it makes one that it has given up")
	}
	if take(50, 90); !c.Make("orders", own(60)) {
		t.Error("it makes none within its next bound")
	}
	c.Told(session.Message{Kind: session.MessageFenced, Group: "orders", Low: isotone.Timestamp{Time: 35}, Through: own(90)})
	if c.Make("orders", own(70)) {
		t.Error("it makes one that is fenced")
	}
	take(100, 120)
	c.Disconnected()
	if c.Make("orders", own(110)) {
		t.Error("it makes one without a connection")
	}
}
