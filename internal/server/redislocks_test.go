package server_test

import (
	"strconv"
	"strings"
	"testing"

	"github.com/isotone/isotone/internal/check/rig"
	"github.com/isotone/isotone/internal/check/testnode"
	"github.com/isotone/isotone/internal/host/config"
)

// TestRedisLocks_ExcludeEachOther on connections in different loops, and sessions; for users with the role only.
func TestRedisLocks_ExcludeEachOther(t *testing.T) {
	t.Parallel()
	n := testnode.Guarded(t, `{"users": {"locker": {"roles": ["locks"], "names": ["jobs/"], "secrets": ["HASH"]}, "other": {"roles": ["timestamps"], "secrets": ["HASH"]}}}`, func(s *config.Settings) {
		s.Loops, s.RedisLocks = 3, true
	})
	var by [3]*speaker
	for i := range by {
		by[i] = speaks(t, n.Client)
		by[i].wants("AUTH", by[i].asks("AUTH locker "+rig.Secret), "+OK")
	}
	a, b, c := by[0], by[1], by[2]
	a.wants("SET", a.asks("SET jobs/nightly a NX PX 60000"), "+OK")
	b.wants("SET of another", b.asks("SET jobs/nightly b NX PX 60000"), "nil")
	c.wants("GET", c.asks("GET jobs/nightly"), "a")
	c.wants("BIND", c.asks("SESSION BIND 00000000000000c1 1 TTL 60000"), "[holds [] frontiers []]")
	if got := c.asks("LOCK ACQUIRE jobs/nightly"); !strings.HasPrefix(got, "-LOCKED ") {
		t.Errorf("a session: %q", got)
	}
	first, err := strconv.ParseUint(a.asks("LOCK TOKEN jobs/nightly a"), 10, 64)
	if err != nil {
		t.Error(err)
	}
	b.wants("the token for another value", b.asks("LOCK TOKEN jobs/nightly b"), "nil")
	b.wants("DEL", b.asks("DEL jobs/nightly"), ":1")
	if got := c.asks("LOCK ACQUIRE jobs/nightly"); !strings.HasSuffix(got, " nil]") {
		t.Errorf("a session, when it is free: %q", got)
	}
	b.wants("SET beside a session", b.asks("SET jobs/nightly b NX PX 60000"), "nil")
	if got := b.asks("DEL jobs/nightly"); !strings.HasPrefix(got, "-LOCKED a session holds this lock") {
		t.Errorf("DEL beside a session: %q", got)
	}
	c.wants("CLOSE", c.asks("SESSION CLOSE"), "+OK")
	for b.asks("SET jobs/nightly b NX") != "+OK" { // until the end of the session is applied
		b.wants("GET of a lock of a session", b.asks("EXISTS jobs/nightly")[:1], ":")
	}
	if last, err := strconv.ParseUint(b.asks("LOCK TOKEN jobs/nightly b"), 10, 64); err != nil || last <= first {
		t.Errorf("token %d after %d: %v", last, first, err)
	}
	other := speaks(t, n.Client)
	other.wants("AUTH", other.asks("AUTH other "+rig.Secret), "+OK")
	for _, command := range []string{"SET x a NX", "GET x", "EVAL x 1 x", "SCRIPT LOAD x", "LOCK TOKEN x a"} {
		if got := other.asks(command); !strings.HasPrefix(got, "-NOPERM") {
			t.Errorf("without the role, %s: %q", command, got)
		}
	}
	for _, command := range []string{"SET x a NX", "LOCK TOKEN x a"} {
		if got := a.asks(command); !strings.HasPrefix(got, "-NOPERM user locker may not use the lock or group") {
			t.Errorf("without the name, %s: %q", command, got)
		}
	}
	if got := a.asks("EVAL x 1 x"); !strings.HasPrefix(got, "-ERR this script is not known") {
		t.Errorf("EVAL: %q", got)
	}
}
