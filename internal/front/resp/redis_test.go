package resp

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/core/redislock"
	"github.com/isotone/isotone/internal/front"
)

// fakeRedisLocks answers with reply and err.
type fakeRedisLocks struct {
	asked []redislock.Request
	reply redislock.Reply
	err   error
	later *front.RedisLockRequest
	keep  bool // the request, instead of answering it
}

func (f *fakeRedisLocks) AskRedisLock(r *front.RedisLockRequest) {
	f.asked = append(f.asked, r.Request)
	if f.keep {
		f.later = r
		return
	}
	r.Reply, r.Err = f.reply, f.err
	r.Done(r)
}

func newRedisTape(t *testing.T) (*tape, *fakeRedisLocks) {
	locks := &fakeRedisLocks{}
	return newTape(t, New(Config{Backend: newOracle(), RedisLocks: locks, Scripts: &Scripts{}})), locks
}

// says sends a command as clients do, and returns the answer.
func (w *tape) says(args ...string) string {
	w.feed(array(args...))
	w.flush()
	w.turn()
	got := string(w.got)
	w.got = nil
	return got
}

func TestRedis_CommandsAreOperations(t *testing.T) {
	x := func(op redislock.Op) redislock.Request { return redislock.Request{Op: op, Name: "x", Any: true} }
	set := func(op redislock.Op, ttl time.Duration) redislock.Request {
		return redislock.Request{Op: op, Name: "x", Value: "v w", TTL: ttl}
	}
	done, free, held := redislock.Reply{Done: true}, redislock.Reply{}, redislock.Reply{Held: true, Value: "v", Left: 1500*time.Millisecond + 1, Token: 7}
	forever := redislock.Reply{Held: true, Value: "v", Forever: true, Done: true, Token: 7}
	expire := x(redislock.Refresh)
	expire.TTL = 3 * time.Second
	for _, tt := range []struct {
		say   []string
		want  redislock.Request
		reply redislock.Reply
		hear  string
	}{
		{[]string{"SET", "x", "v w", "NX", "PX", "1500"}, set(redislock.Obtain, 1500*time.Millisecond), done, "+OK\r\n"},
		{[]string{"SET", "x", "v w", "ex", "3", "nx"}, set(redislock.Obtain, 3*time.Second), free, "$-1\r\n"},
		{[]string{"SET", "x", "v w", "NX"}, set(redislock.Obtain, 0), done, "+OK\r\n"},
		{[]string{"SET", "x", "v w"}, set(redislock.Set, 0), done, "+OK\r\n"},
		{[]string{"GET", "x"}, x(redislock.Read), held, "$1\r\nv\r\n"},
		{[]string{"GET", "x"}, x(redislock.Read), free, "$-1\r\n"},
		{[]string{"DEL", "x"}, x(redislock.Delete), done, ":1\r\n"},
		{[]string{"DEL", "x"}, x(redislock.Delete), free, ":0\r\n"},
		{[]string{"EXISTS", "x"}, x(redislock.Read), held, ":1\r\n"},
		{[]string{"PTTL", "x"}, x(redislock.Read), held, ":1501\r\n"},
		{[]string{"PTTL", "x"}, x(redislock.Read), forever, ":-1\r\n"},
		{[]string{"pttl", "x"}, x(redislock.Read), free, ":-2\r\n"},
		{[]string{"TTL", "x"}, x(redislock.Read), held, ":2\r\n"},
		{[]string{"EXPIRE", "x", "3"}, expire, done, ":1\r\n"},
		{[]string{"PEXPIRE", "x", "3000"}, expire, free, ":0\r\n"},
		{[]string{"LOCK", "TOKEN", "x", "v"}, redislock.Request{Op: redislock.Read, Name: "x", Value: "v"}, forever, "$1\r\n7\r\n"},
		{[]string{"LOCK", "TOKEN", "x", "v"}, redislock.Request{Op: redislock.Read, Name: "x", Value: "v"}, held, "$-1\r\n"},
	} {
		w, locks := newRedisTape(t)
		locks.reply = tt.reply
		if got := w.says(tt.say...); got != tt.hear || len(locks.asked) != 1 || locks.asked[0] != tt.want {
			t.Errorf("%q: %q, want %q; asked %+v, want %+v", tt.say, got, tt.hear, locks.asked, tt.want)
		}
	}
}

// known are the scripts by the SHA-256 of their text without white space, and what is sent with them.
func TestRedis_ScriptsAreOperations(t *testing.T) {
	q := func(op redislock.Op, value string, ttl time.Duration, prefix int) redislock.Request {
		return redislock.Request{Op: op, Name: "x", Value: value, TTL: ttl, Prefix: prefix}
	}
	for _, tt := range []struct {
		hash  string
		args  []string
		want  redislock.Request
		reply redislock.Reply
		hear  string
	}{
		{"4e44", []string{"v", "1500"}, q(redislock.Refresh, "v", 1500*time.Millisecond, 0), redislock.Reply{Done: true}, ":1"},
		{"47b9", []string{"v"}, q(redislock.Delete, "v", 0, 0), redislock.Reply{}, ":0"},
		{"0dc8", []string{"v"}, q(redislock.Read, "v", 0, 0), redislock.Reply{Held: true, Value: "v", Left: time.Second}, ":-3"},
		{"0dc8", []string{"v"}, q(redislock.Read, "v", 0, 0), redislock.Reply{Held: true, Value: "v", Left: time.Second, Done: true}, ":1000"},
		{"caa9", []string{"v", "1", "5"}, q(redislock.ObtainAgain, "v", 5*time.Millisecond, 1), redislock.Reply{Done: true}, "+OK"},
		{"caa9", []string{"v", "1", "5"}, q(redislock.ObtainAgain, "v", 5*time.Millisecond, 1), redislock.Reply{}, "$-1"},
		{"caa9", []string{"v", "1", "0"}, redislock.Request{}, redislock.Reply{}, "-ERR a lock is held for at least 1 ms"},
		{"caa9", []string{"v", "x", "5"}, redislock.Request{}, redislock.Reply{}, `-ERR "x": want the number of bytes of the value that tell the holder`},
		{"36bc", []string{"v"}, q(redislock.Delete, "v", 0, 0), redislock.Reply{Held: true, Value: "w"}, ":0"},
		{"36bc", []string{"v"}, q(redislock.Delete, "v", 0, 0), redislock.Reply{}, ":-1"},
		{"4342", []string{"v", "1"}, q(redislock.Refresh, "v", time.Millisecond, 0), redislock.Reply{Done: true}, ":1"},
		{"0826", []string{"v", "1"}, q(redislock.ObtainOrRefresh, "v", time.Millisecond, 0), redislock.Reply{Done: true}, ":1"},
		{"5edb", []string{"v"}, q(redislock.Delete, "v", 0, 0), redislock.Reply{Done: true}, ":1"},
		{"c7cd", []string{"v", "5", "0"}, q(redislock.Extend, "v", 5*time.Millisecond, 0), redislock.Reply{Done: true}, ":1"},
		{"c7cd", []string{"v", "5", "1"}, q(redislock.Refresh, "v", 5*time.Millisecond, 0), redislock.Reply{Done: true}, ":1"},
		{"2dd6", []string{"v", "5"}, q(redislock.Refresh, "v", 5*time.Millisecond, 0), redislock.Reply{}, ":0"},
		{"2dd6", []string{"v", "x"}, redislock.Request{}, redislock.Reply{}, `-ERR "x": want a whole number`},
		{"2dd6", []string{"v"}, redislock.Request{}, redislock.Reply{}, "-ERR this script is known with 1 key and 2 arguments"},
	} {
		w, locks := newRedisTape(t)
		locks.reply = tt.reply
		for hash, s := range scripts {
			if strings.HasPrefix(hash, tt.hash) {
				w.conn.front.cfg.Scripts.bySHA1 = map[string]*script{"ab12": s}
			}
		}
		got := w.says(append([]string{"EVALSHA", "AB12", "1", "x"}, tt.args...)...)
		asked := redislock.Request{}
		if len(locks.asked) > 0 {
			asked = locks.asked[0]
		}
		if !strings.HasPrefix(got, tt.hear) || asked != tt.want {
			t.Errorf("%s %q: %q, want %q; asked %+v, want %+v", tt.hash, tt.args, got, tt.hear, asked, tt.want)
		}
	}
}

func TestRedis_ScriptsAreKnownByTheirText(t *testing.T) {
	sum := sha256.Sum256([]byte("returnKEYS[1]"))
	text := hex.EncodeToString(sum[:])
	scripts[text] = &script{redislock.Delete, []scriptArg{argValue}, (*reply).done}
	t.Cleanup(func() { delete(scripts, text) })
	w, locks := newRedisTape(t)
	unknown := 0
	w.conn.front.cfg.Scripts.Unknown = func() { unknown++ }
	const sha1 = "4fe7bd1a40dd6ae2fa9b9d2e0e5c5fd4bcb4bd13" // of no script
	for _, tt := range []struct {
		say  []string
		want string
	}{
		{[]string{"EVALSHA", sha1, "1", "x", "v"}, "-NOSCRIPT No matching script. Please use EVAL.\r\n"},
		{[]string{"EVAL", "return KEYS[2]", "1", "x", "v"}, "-ERR this script is not known, and there is no Lua; LOCK ACQUIRE does this with a token"},
		{[]string{"SCRIPT", "LOAD", "return 1"}, "-ERR this script is not known"},
		{[]string{"EVAL", "\n\treturn\r KEYS[1] ", "1", "x", "v"}, ":0\r\n"},
		{[]string{"EVAL", "return KEYS[1]", "2", "x", "y"}, "-ERR this script is known with 1 key and 1 arguments"},
		{[]string{"EVAL", "return KEYS[1]", "0", "x", "y"}, "-ERR this script is known with 1 key"},
		{[]string{"SCRIPT", "FLUSH", "x"}, "-ERR unknown subcommand"},
		{[]string{"SCRIPT", "EXISTS", sha1}, "*1\r\n:0\r\n"},
	} {
		if got := w.says(tt.say...); !strings.HasPrefix(got, tt.want) {
			t.Errorf("%q: %q, want %q", tt.say, got, tt.want)
		}
	}
	if unknown != 2 {
		t.Errorf("%d unknown scripts are counted, want 2", unknown)
	}
	name := strings.Split(w.says("SCRIPT", "LOAD", "return KEYS[1]"), "\r\n")[1]
	if got := w.says("SCRIPT", "EXISTS", sha1, name); got != "*2\r\n:0\r\n:1\r\n" {
		t.Errorf("SCRIPT EXISTS: %q", got)
	}
	if got := w.says("EVALSHA", strings.ToUpper(name), "1", "x", "v"); got != ":0\r\n" || len(locks.asked) != 2 {
		t.Errorf("EVALSHA: %q, %v", got, locks.asked)
	}
	for i := range loadedMax {
		w.says("EVAL", "return KEYS[1]"+strings.Repeat(" ", i+3), "1", "x", "v")
	}
	if got := w.says("SCRIPT", "LOAD", " return KEYS[1]"); !strings.HasPrefix(got, "-TRYAGAIN 256 scripts are loaded") {
		t.Errorf("one script too many: %q", got)
	}
	if got := w.says("EVAL", " return KEYS[1]", "1", "x", "v"); got != ":0\r\n" {
		t.Errorf("EVAL of one too many: %q", got)
	}
}

func TestRedis_BadCommandsSayWhatThereIs(t *testing.T) {
	w, locks := newRedisTape(t)
	long := strings.Repeat("k", 129)
	for say, want := range map[string]string{
		"SET x v XX": "-ERR REDIS_LOCKS offers locks only: SET key value [NX]", "SET x v NX NX": "-ERR REDIS_LOCKS offers", "SET x v PX": "-ERR REDIS_LOCKS", "SET x v PX 1 EX 1": "-ERR REDIS_LOCKS", "SET x v GET": "-ERR REDIS_LOCKS",
		"SET x v KEEPTTL NX": "-ERR REDIS_LOCKS", "SET x v PX 0": "-ERR a lock is held for at least 1 ms", "SET x v PX -1": "-ERR a lock is held for at least", "SET x v EX x": `-ERR "x": want a whole number of at most 86400`,
		"SET x v PX 86400001": "-ERR \"86400001\": want a whole number of at most 86400000", "SET x v EX 9223372036854775807": "-ERR", "SET " + long + " v NX": "-ERR the key of a lock has 1 to 128 bytes",
		"SET x " + long + " NX": "-ERR the value of a lock has 1 to 112 bytes", "DEL x y": "-ERR REDIS_LOCKS", "EXISTS x y": "-ERR REDIS_LOCKS", "PEXPIRE x 5 NX": "-ERR REDIS_LOCKS", "EXPIRE x y": `-ERR "y"`,
		"LOCK TOKEN x": "-ERR want LOCK TOKEN key value", "GET": "-ERR wrong number", "HSET x y z": "-ERR unknown command", "FLUSHDB": "-ERR unknown command", "SELECT 256": "-ERR DB index is out of range: there are 0 to 255",
		"SELECT -1": "-ERR DB index", "CLIENT TRACKING ON": "-ERR CLIENT TRACKING is not supported", "CLIENT TRACKING ON OPTIN": "+OK", "GET isotone:redis:1": "-ERR the key of a lock does not begin with",
	} {
		if got := w.says(strings.Fields(say)...); !strings.HasPrefix(got, want) || strings.Count(got, "\r\n") != 1 {
			t.Errorf("%s: %q, want %s", say, got, want)
		}
	}
	if len(locks.asked) > 0 {
		t.Errorf("asked %+v", locks.asked)
	}
	if got := w.says("MULTI"); got != "+OK\r\n" {
		t.Fatal(got)
	}
	if got := w.says("GET", "x"); got != "-ERR GET is not allowed between MULTI and EXEC\r\n" {
		t.Errorf("in a transaction: %q", got)
	}
}

func TestRedis_DatabasesHaveDifferentLocks(t *testing.T) {
	w, locks := newRedisTape(t)
	w.says("SELECT", "255")
	w.says("GET", "x")
	w.says("SELECT", "0")
	w.says("GET", "x")
	w.says("SELECT", "7")
	w.says("RESET")
	w.says("GET", "x")
	var names []string
	for _, q := range locks.asked {
		names = append(names, q.Name)
	}
	if got := fmt.Sprint(names); got != "[db255/x x x]" {
		t.Errorf("%v", got)
	}
}

func TestRedis_OneIsRedirectedToTheLeader(t *testing.T) {
	w, locks := newRedisTape(t)
	locks.err = &isotone.Error{Code: isotone.CodeNotLeader, Message: "node 2 leads", Leader: "10.0.0.2:8080"}
	if got := w.says("GET", "x"); got != "-MOVED 0 10.0.0.2:8080\r\n" {
		t.Errorf("%q", got)
	}
	locks.keep = true
	w.says("GET", "x")
	w.conn.front.Stop()
	if got := w.says("PING"); got != "-CLUSTERDOWN this node is stopping\r\n" {
		t.Errorf("a front that stops: %q", got)
	}
	locks.later.Done(locks.later) // late
}

func TestRedis_WithoutTheSettingThereIsNothing(t *testing.T) {
	w := newTape(t, New(Config{Backend: newOracle(), Sessions: &fakeSessions{t: t}}))
	for _, say := range []string{"SET x v NX", "GET x", "DEL x", "EXISTS x", "PTTL x", "TTL x", "EXPIRE x 1", "PEXPIRE x 1", "EVAL x 1 x", "EVALSHA x 1 x", "SCRIPT LOAD x"} {
		if got := w.says(strings.Fields(say)...); !strings.HasPrefix(got, "-ERR unknown command") {
			t.Errorf("%s: %q", say, got)
		}
	}
	if got := w.says("LOCK", "TOKEN", "x", "v"); !strings.HasPrefix(got, "-ERR want LOCK ACQUIRE") {
		t.Errorf("LOCK TOKEN: %q", got)
	}
}
