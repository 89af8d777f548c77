package resp

import (
	"bytes"
	"strings"
	"testing"

	"github.com/isotone/isotone/internal/auth/access"
)

// FuzzCredentials has AUTH and HELLO with arguments of all kinds. Credentials that may be right
// are those that were sent, byte by byte; others stay wrong; and none are taken from a command
// that is answered with an error.
func FuzzCredentials(f *testing.F) {
	long := strings.Repeat("x", access.SecretMax)
	for _, args := range [][]string{
		{"AUTH"}, {"AUTH", "secret"}, {"AUTH", "alice", "secret"}, {"AUTH", "a", "b", "c"}, {"AUTH", "alice", long}, {"AUTH", "alice", long + "x"}, {"AUTH", long + "xx", ""},
		{"HELLO"}, {"HELLO", "3"}, {"HELLO", "4"}, {"HELLO", "3", "AUTH", "alice", "secret"}, {"HELLO", "2", "SETNAME", "x", "auth", "alice", "secret"},
		{"HELLO", "3", "AUTH", "alice", "secret", "AUTH", "bob", "\r\n"}, {"HELLO", "3", "AUTH", "alice"}, {"HELLO", "3", "AUTH", "alice", "secret", "SETNAME", "a b"},
	} {
		f.Add(array(args...))
	}
	f.Add([]byte("AUTH alice \"sec ret\"\r\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		var q request
		if used, err := q.parse(b); used == 0 || err != nil || len(q.args) == 0 {
			return
		}
		if c, ok := parseAuth(q.args); ok != (len(q.args) == 2 || len(q.args) == 3) {
			t.Fatalf("%q: %v", q.args, ok)
		} else if ok {
			name := []byte(defaultUser)
			if len(q.args) == 3 {
				name = q.args[1]
			}
			checkCredentials(t, c, name, q.args[len(q.args)-1])
		}
		g, r := greeting{name: "before"}, reply{}
		if ok := g.parse(q.args, &r); ok != (len(r.b) == 0) {
			t.Fatalf("%q: %v, answered %q", q.args, ok, r.b)
		} else if !ok {
			checkAnswers(t, r.b)
			return
		}
		at := -1
		for i := 2; i < len(q.args); i += 2 {
			if bytes.EqualFold(q.args[i], []byte("AUTH")) {
				at = i
				i++
			}
		}
		if g.credentials == nil != (at < 0) {
			t.Fatalf("%q gives %v", q.args, g.credentials)
		}
		if at >= 0 {
			checkCredentials(t, *g.credentials, q.args[at+1], q.args[at+2])
		}
		if len(g.name) > clientNameMax || strings.ContainsAny(g.name, " \r\n") {
			t.Fatalf("%q gives the name %q", q.args, g.name)
		}
	})
}

// checkCredentials fails unless c is what was sent, or both cannot be right.
func checkCredentials(t *testing.T, c access.Credentials, name, secret []byte) {
	t.Helper()
	valid := func(name, secret string) bool {
		return access.ValidName(name) && secret != "" && len(secret) <= access.SecretMax
	}
	sent := valid(string(name), string(secret))
	if sent != valid(c.Name, c.Secret) || sent && (c.Name != string(name) || c.Secret != string(secret)) {
		t.Fatalf("%q and %q give %+v", name, secret, c)
	}
	if len(c.Name) > access.SecretMax+1 || len(c.Secret) > access.SecretMax+1 {
		t.Fatalf("%d and %d bytes are kept", len(c.Name), len(c.Secret))
	}
}
