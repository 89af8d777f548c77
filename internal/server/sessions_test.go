package server_test

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"testing"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/check/await"
	"github.com/isotone/isotone/internal/check/rig"
	"github.com/isotone/isotone/internal/check/testnode"
	"github.com/isotone/isotone/internal/host/config"
)

// speaker speaks the protocol of Redis, and sees all of an answer.
type speaker struct {
	*testing.T
	*rig.RedisConn
}

func speaks(t *testing.T, addr string) *speaker {
	return &speaker{t, rig.DialRedis(t, addr, nil)}
}

// hears returns the next answer or message as text: a container as its items in brackets, a message after ">".
func (s *speaker) hears() string {
	s.Helper()
	line, err := s.R.ReadString('\n')
	if err != nil {
		s.Fatalf("%q, %v", line, err)
	}
	line = strings.TrimSuffix(line, "\r\n")
	n, _ := strconv.Atoi(line[1:])
	switch line[0] {
	case '$':
		if n < 0 {
			return "nil"
		}
		b := make([]byte, n+2)
		if _, err := io.ReadFull(s.R, b); err != nil {
			s.Fatal(err)
		}
		return string(b[:n])
	case '_':
		return "nil"
	case '%', '*', '>':
		if line[0] == '%' {
			n *= 2
		}
		var items []string
		for range n {
			items = append(items, s.hears())
		}
		return strings.Trim(line[:1], "*%") + fmt.Sprint(items)
	}
	return line
}

// asks sends a command and returns its answer, again while the node cannot answer for the moment.
func (s *speaker) asks(command string) (answer string) {
	s.Helper()
	await.Until(s.T, command+" is answered", func() bool {
		s.Send(command)
		answer = s.hears()
		return !strings.HasPrefix(answer, "-TRYAGAIN") && !strings.HasPrefix(answer, "-CLUSTERDOWN")
	})
	return answer
}

func (s *speaker) wants(what, got, want string) {
	s.Helper()
	if got != want {
		s.Errorf("%s: %q, want %q", what, got, want)
	}
}

// TestSessions_ALockGoesFromOneConnectionToAnother, in other loops: when it is released, and when its holder's connection ends.
func TestSessions_ALockGoesFromOneConnectionToAnother(t *testing.T) {
	t.Parallel()
	n := testnode.Guarded(t, `{"users": {}}`, func(s *config.Settings) {
		s.Loops, s.ACLFile = 3, ""
	})
	holder, waiter, third, watcher := speaks(t, n.Client), speaks(t, n.Client), speaks(t, n.Client), speaks(t, n.Client)
	const bound = "[holds [] frontiers []]"
	holder.wants("BIND", holder.asks("SESSION BIND 00000000000000a1 1 TTL 8000 LINGER 0"), bound)
	third.asks("HELLO 3")
	third.wants("BIND in RESP3", third.asks("SESSION BIND 00000000000000a3 1 TTL 60000"), bound)
	waiter.wants("BIND", waiter.asks("SESSION BIND 00000000000000a2 1 TTL 60000 LINGER 0"), bound)
	first := holder.asks("LOCK ACQUIRE shop VALUE me")
	var token uint64
	if _, err := fmt.Sscanf(first, "[%d nil]", &token); err != nil || token == 0 {
		t.Fatalf("LOCK ACQUIRE: %q", first)
	}
	if answer := waiter.asks("LOCK ACQUIRE shop"); !strings.HasPrefix(answer, "-LOCKED ") {
		t.Errorf("a lock that is held: %q", answer)
	}
	if seen := watcher.asks("LOCK GET shop"); !strings.HasPrefix(seen, fmt.Sprintf("[token %d value me session ", token)) || strings.Contains(seen, "00000000000000a1") {
		t.Errorf("LOCK GET: %q", seen)
	}
	watcher.Send(fmt.Sprint("LOCK WATCH shop ", token))

	ticket := waiter.asks("LOCK ACQUIRE shop WAIT 0 VALUE next")
	if !strings.HasPrefix(ticket, "[nil 1") {
		t.Errorf("LOCK ACQUIRE … WAIT 0: %q", ticket)
	}
	third.Send("LOCK ACQUIRE shop WAIT 0")
	queued := strings.TrimSuffix(strings.TrimPrefix(third.hears(), ">[session queued shop "), "]")
	third.wants("LOCK ACQUIRE … WAIT 0", third.hears(), "[nil "+queued+"]")
	waiter.Send("LOCK ACQUIRE shop WAIT 15000")
	holder.wants("LOCK RELEASE", holder.asks(fmt.Sprint("LOCK RELEASE shop ", token)), "+OK")
	var next, last uint64
	got := waiter.hears()
	if _, err := fmt.Sscanf(got, "[%d nil]", &next); err != nil || next <= token {
		t.Fatalf("LOCK ACQUIRE … WAIT: %q after %d", got, token)
	}
	if seen := watcher.hears(); seen != "nil" && !strings.HasPrefix(seen, fmt.Sprintf("[token %d value next", next)) {
		t.Errorf("LOCK WATCH: %q", seen)
	}
	_ = waiter.Close()
	got = third.hears()
	if _, err := fmt.Sscanf(got, ">[session granted shop %d]", &last); err != nil || last <= next {
		t.Errorf("a message: %q after %d", got, next)
	}
	if list := watcher.asks("LOCK LIST sh"); !strings.HasPrefix(list, fmt.Sprintf("[[name shop token %d", last)) {
		t.Errorf("LOCK LIST: %q", list)
	}
}

// TestSessions_AFrontierFollowsItsWriters.
func TestSessions_AFrontierFollowsItsWriters(t *testing.T) {
	t.Parallel()
	n := testnode.Guarded(t, `{"users": {}}`, func(s *config.Settings) { s.Loops, s.ACLFile = 2, "" })
	writer, reader := speaks(t, n.Client), speaks(t, n.Client)
	writer.asks("HELLO 3")
	const none = "00000000000000000000000000000001 00000000000000000000000000000000"
	if bound := writer.asks("SESSION BIND 00000000000000b1 1 TTL 60000 GROUP orders " + none); !strings.HasPrefix(bound, "[holds [] frontiers [[orders ") {
		t.Fatalf("BIND: %q", bound)
	}
	through, ok := strings.CutPrefix(strings.TrimSuffix(writer.hears(), "]"), ">[session seal orders ")
	if !ok {
		t.Fatalf("no seal: %q", through)
	}
	writer.wants("SEALED", writer.answers("FRONTIER SEALED orders "+through), "+OK")
	var first, last string
	if _, err := fmt.Sscanf(strings.Trim(writer.answers("FRONTIER TAKE orders 3"), "[]"), "%s %s", &first, &last); err != nil || len(first) != 32 || first[:31] != last[:31] {
		t.Fatalf("%q, %q, %v", first, last, err)
	}
	if f := reader.asks("FRONTIER GET orders"); f >= first || f < through {
		t.Errorf("the frontier is %s, with writes from %s on outstanding", f, first)
	}
	reader.Send("FRONTIER WAIT orders " + last)
	above, err := isotone.ParseTimestamp(last)
	if err != nil {
		t.Fatal(err)
	}
	above.Index++
	writer.wants("LOW", writer.answers(fmt.Sprint("SESSION KEEP LOW orders ", above)), "+OK")
	if f := reader.hears(); f < last {
		t.Errorf("the frontier is %s, when all writes up to %s are decided", f, last)
	}
}

// answers sends a command and returns its answer, without the messages before it.
func (s *speaker) answers(command string) string {
	s.Helper()
	s.Send(command)
	for {
		if got := s.hears(); !strings.HasPrefix(got, ">") {
			return got
		}
	}
}
