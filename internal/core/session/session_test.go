package session_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/core/session"
)

const tick = 10 * time.Millisecond

// leader is a table with a clock that ticks.
type leader struct {
	*session.Table
	now time.Duration
}

func open() *leader { return &leader{session.New(0, tick), 0} }

// run ticks for a time, and returns which sessions were over, and when.
func (l *leader) run(d time.Duration) map[session.ID]time.Duration {
	over := map[session.ID]time.Duration{}
	for end := l.now + d; l.now < end; {
		l.now += tick
		for _, id := range l.Tick(l.now) {
			over[id] = l.now
		}
	}
	return over
}

func bind(id session.ID, conn session.Conn, epoch uint32) (session.Conn, session.Bind) {
	return conn, session.Bind{ID: id, Epoch: epoch, TTL: time.Second, Linger: 100 * time.Millisecond}
}

// rules are the rules that a table keeps, each with what it does wrong, nil if nothing.
var rules = map[string]func() error{
	"a silent session ends, and not before its client has stopped to believe in it": func() error {
		l := open()
		conn, b := bind(1, 1, 1)
		b.TTL = time.Minute
		_, err := l.Bind(conn, b)
		// The clock of the client is slow, that of the leader fast, each by 10 %.
		believes := time.Duration(float64(b.TTL) * 1.1 / 0.9)
		over := l.run(2 * time.Minute)[1]
		if over <= believes || over > b.TTL*5/4 {
			return fmt.Errorf("it ends after %v", over)
		}
		return err
	},
	"so does one without a connection": func() error {
		l := open()
		conn, b := bind(1, 1, 1)
		b.TTL, b.Linger = time.Minute, 30*time.Second
		_, err := l.Bind(conn, b)
		l.Gone(1)
		if over := l.run(2 * time.Minute)[1]; over <= time.Duration(float64(b.Linger)*1.1/0.9) || over > b.Linger*5/4 {
			return fmt.Errorf("it ends after %v", over)
		}
		return err
	},
	"what comes between two ticks counts from when it came": func() error {
		l := open()
		conn, b := bind(1, 1, 1)
		_, err := l.Bind(conn, b) // 1 ns before a tick that is late
		came := 3*tick - 1
		l.Tick(3 * tick)
		l.now = 3 * tick
		if over := l.run(2 * time.Second)[1]; over <= came+b.TTL*11/9 {
			return fmt.Errorf("it ends after %v", over-came)
		}
		return err
	},
	"a session that is heard goes on": func() error {
		l := open()
		_, err := l.Bind(bind(1, 1, 1))
		for range 100 {
			if id, ok := l.Heard(1); id != 1 || !ok || len(l.run(500*time.Millisecond)) != 0 {
				return errors.New("it ends")
			}
		}
		return err
	},
	"the session of a hold has its full TTL under a new leader": func() error {
		l := open()
		l.Restore(1, time.Second)
		if over := l.run(2 * time.Second)[1]; over <= time.Second {
			return fmt.Errorf("it ends after %v", over)
		}
		return nil
	},
	"a leader that did not run ends nobody for it": func() error {
		l := open()
		_, err := l.Bind(bind(1, 1, 1))
		l.Gone(1)
		l.now += time.Hour
		if over := l.Tick(l.now); len(over) != 0 {
			return errors.New("it ends")
		}
		return err
	},
	"an earlier connection counts for nothing": func() error {
		l := open()
		_, err1 := l.Bind(bind(1, 1, 1))
		former, err2 := l.Bind(bind(1, 2, 2))
		if _, ok := l.Heard(1); ok || former != 1 || l.Speaks(1, 1) || !l.Speaks(2, 1) {
			return errors.New("it is heard")
		}
		for epoch := range uint32(3) {
			if _, err := l.Bind(bind(1, 3, epoch)); !errors.Is(err, session.ErrSuperseded) {
				return fmt.Errorf("epoch %d binds: %v", epoch, err)
			}
		}
		l.Gone(1)
		if len(l.run(500*time.Millisecond)) != 0 {
			return errors.New("its end ends the session")
		}
		return errors.Join(err1, err2)
	},
	"a session that is being ended is told so": func() error {
		l := open()
		_, err := l.Bind(bind(1, 1, 1))
		if over := l.run(2 * time.Second); len(over) != 1 {
			return fmt.Errorf("over: %v", over)
		}
		_, heard := l.Heard(1)
		if _, err := l.Bind(bind(1, 2, 2)); !errors.Is(err, session.ErrExpired) || heard || l.Speaks(1, 1) {
			return fmt.Errorf("it goes on: %v", err)
		}
		l.Ended(1)
		if l.Len() != 0 {
			return errors.New("it is there after its end")
		}
		return err
	},
	"another session binds over the connection of one that is being ended": func() error {
		l := open()
		_, err1 := l.Bind(bind(1, 1, 1))
		l.Close(1)
		_, err2 := l.Bind(bind(2, 1, 1))
		l.Ended(1)
		if id, ok := l.Heard(1); id != 2 || !ok {
			return errors.New("it is not heard")
		}
		return errors.Join(err1, err2)
	},
	"a client heeds nothing before it is bound": func() error {
		c := session.NewClient(1, time.Second, time.Second)
		c.Acquire("x", "", false)
		c.Connected()
		c.Next(0)
		c.Told(session.Message{Kind: session.MessageGranted, Name: "x", Token: 7})
		if token, _ := c.Token("x", 0); token != 0 {
			return errors.New("it takes the word of a leader that may be deposed")
		}
		return nil
	},
	"a TTL has whole milliseconds, as the log has": func() error {
		l := open()
		conn, b := bind(1, 1, 1)
		if b.TTL += time.Microsecond; !refuses(l, conn, b) {
			return errors.New("a part of one is accepted")
		}
		return nil
	},
	"TTL and LINGER stay": func() error {
		l := open()
		l.Restore(1, time.Second)
		conn, b := bind(1, 1, 1)
		if b.TTL *= 2; !refuses(l, conn, b) {
			return errors.New("the TTL of a hold grows")
		}
		_, err := l.Bind(bind(1, 1, 1))
		conn, b = bind(1, 2, 2)
		if b.Linger *= 2; !refuses(l, conn, b) {
			return errors.New("the LINGER grows")
		}
		return err
	},
}

func refuses(l *leader, conn session.Conn, b session.Bind) bool {
	_, err := l.Bind(conn, b)
	return errors.Is(err, isotone.ErrInvalidArgument)
}

func TestRules(t *testing.T) {
	for name, rule := range rules {
		if err := rule(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestBind_RefusesWhatIsTooMuch(t *testing.T) {
	l := open()
	if _, b := bind(1, 1, 1); !refuses(l, 0, b) {
		t.Error("no connection is accepted")
	}
	for what, change := range map[string]func(b *session.Bind){
		"no ID":       func(b *session.Bind) { b.ID = 0 },
		"a short TTL": func(b *session.Bind) { b.TTL = time.Millisecond }, "a long TTL": func(b *session.Bind) { b.TTL = time.Hour },
		"a long LINGER": func(b *session.Bind) { b.Linger = time.Hour }, "a negative LINGER": func(b *session.Bind) { b.Linger = -1 },
	} {
		conn, b := bind(1, 1, 1)
		if change(&b); !refuses(l, conn, b) || l.Len() != 0 {
			t.Errorf("%s is accepted", what)
		}
	}
	for id := range session.ID(session.Max) {
		if _, err := l.Bind(bind(id+1, session.Conn(id+1), 1)); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := l.Bind(bind(1<<40, 1<<40, 1)); !errors.Is(err, isotone.ErrOverloaded) {
		t.Errorf("one too many: %v", err)
	}
	if conn, b := bind(2, 1, 2); !refuses(l, conn, b) {
		t.Error("a connection binds two sessions")
	}
	if over := l.run(2 * time.Second); len(over) != session.Max {
		t.Errorf("%d are over", len(over))
	}
}

// TestTable_EndsWhoIsDue compares the queue with a plain list.
func TestTable_EndsWhoIsDue(t *testing.T) {
	type model struct {
		conn        session.Conn
		epoch       uint32
		heard, gone time.Duration
	}
	rng := rand.New(rand.NewPCG(1, 2))
	l, all, conns := open(), map[session.ID]*model{}, session.Conn(0)
	for range 20000 {
		id := session.ID(1 + rng.Uint64N(20))
		m := all[id]
		switch rng.IntN(6) {
		case 0:
			conns++
			if m == nil {
				m = &model{}
				all[id] = m
			}
			m.conn, m.heard = conns, l.now
			m.epoch++
			if _, err := l.Bind(bind(id, conns, m.epoch)); err != nil {
				t.Fatal(err)
			}
		case 1:
			if m != nil && m.conn != 0 {
				l.Gone(m.conn)
				m.conn, m.gone = 0, l.now
			}
		case 2, 3:
			if m != nil {
				if _, ok := l.Heard(m.conn); ok != (m.conn != 0) {
					t.Fatalf("session %d is heard: %v", id, ok)
				} else if ok {
					m.heard = l.now
				}
			}
		default:
			l.now += tick
			var want []session.ID
			for id, m := range all { // order-free: sorted below
				due := m.heard + time.Second*11/9 + 3*tick
				if m.conn == 0 {
					due = min(due, m.gone+100*time.Millisecond*11/9+3*tick)
				}
				if due < l.now {
					want = append(want, id)
				}
			}
			got := l.Tick(l.now)
			slices.Sort(want)
			slices.Sort(got)
			if !slices.Equal(got, want) {
				t.Fatalf("at %v, %v are over, want %v", l.now, got, want)
			}
			for _, id := range got {
				delete(all, id)
				l.Ended(id)
			}
		}
	}
}

func TestOutlasted_IsTheShortest(t *testing.T) {
	for _, d := range []time.Duration{0, 1, 11 * time.Millisecond, 11*time.Millisecond + 1, 12_222_222_222, 24 * time.Hour} {
		got := session.Outlasted(d)
		if session.Outlast(got) < d || got > 0 && session.Outlast(got-time.Millisecond) >= d || got%time.Millisecond != 0 {
			t.Errorf("%v: %v, which lasts for %v", d, got, session.Outlast(got))
		}
	}
}

func TestTable_LimitsTheSessionsOfAnAccount(t *testing.T) {
	l := open()
	binds := func(id session.ID, epoch uint32, account string, most int) error {
		conn, b := bind(id, session.Conn(id)<<8+session.Conn(epoch), epoch)
		b.Quota = session.Quota{Account: account, Sessions: most}
		_, err := l.Bind(conn, b)
		return err
	}
	l.Restore(1, time.Second)
	for _, step := range []struct {
		what    string
		id      session.ID
		epoch   uint32
		account string
		most    int
		fails   bool
	}{
		{"the first", 2, 1, "shop", 1, false},
		{"one more", 3, 1, "shop", 1, true},
		{"one that holds locks of an earlier term", 1, 2, "shop", 1, false},
		{"one of two once more", 2, 2, "shop", 1, false},
		{"a third, with a larger bound", 3, 1, "shop", 3, false},
		{"another account", 4, 1, "other", 1, false},
		{"one without a bound", 5, 1, "shop", 0, false},
	} {
		if err := binds(step.id, step.epoch, step.account, step.most); (err != nil) != step.fails || err != nil && !errors.Is(err, isotone.ErrQuotaExceeded) {
			t.Errorf("%s: %v", step.what, err)
		}
	}
	for id := range session.ID(6) {
		l.Ended(id)
		l.Ended(id)
	}
	if err := binds(6, 1, "shop", 1); err != nil {
		t.Errorf("once all have ended: %v", err)
	}
}

// An operator breaks a session. Its client may not have heard of that: the session is over as if the client were silent from then on, and no request keeps it alive.
func TestTable_Break(t *testing.T) {
	table := session.New(0, tick)
	b := session.Bind{ID: 1, Epoch: 1, TTL: time.Second, Linger: time.Second}
	if _, err := table.Bind(1, b); err != nil {
		t.Fatal(err)
	}
	ran := time.Duration(0)
	run := func(until time.Duration) (over []session.ID) {
		for ran < until {
			ran += tick
			over = append(over, table.Tick(ran)...)
		}
		return over
	}
	run(200 * time.Millisecond)
	table.Heard(1)
	run(300 * time.Millisecond)
	left := table.Break(1)
	if left < 900*time.Millisecond || left > 1300*time.Millisecond {
		t.Errorf("%v are left", left)
	}
	b.Epoch = 2
	if _, err := table.Bind(2, b); !errors.Is(err, session.ErrExpired) {
		t.Errorf("it binds again: %v", err)
	}
	if over := run(ran + left - 2*tick); len(over) > 0 {
		t.Errorf("it is over before its client stops believing, after %v", ran)
	}
	if _, ok := table.Heard(1); ok || !table.IsCondemned(1) {
		t.Error("a request counts")
	}
	if over := run(ran + 4*tick); len(over) != 1 || table.Lost() != 0 {
		t.Errorf("over: %v, lost: %d", over, table.Lost())
	}
	table.Ended(1)
	if table.Len() != 0 || table.Break(1) != 0 {
		t.Error("it is there still")
	}
}

// A connection whose session was broken may bind another one. The broken one keeps its time.
func TestTable_BindsAfterABreak(t *testing.T) {
	table := session.New(0, tick)
	table.Tick(100 * tick)
	for id := range session.ID(2) {
		if _, err := table.Bind(1, session.Bind{ID: id + 1, Epoch: 1, TTL: time.Second, Linger: time.Second}); err != nil {
			t.Fatal(err)
		}
		if id == 0 && table.Break(1) < time.Second {
			t.Fatal("it may be over at once")
		}
	}
	if id, ok := table.Heard(1); !ok || id != 2 {
		t.Errorf("session %d", id)
	}
	if over := table.Tick(101 * tick); len(over) > 0 {
		t.Errorf("over at once: %v", over)
	}
}
