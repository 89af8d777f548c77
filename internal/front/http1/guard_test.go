package http1_test

import (
	"bufio"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/isotone/isotone/internal/auth/access"
	"github.com/isotone/isotone/internal/front/web"
	"github.com/isotone/isotone/internal/host/loop"
)

const userSecret = "correct-horse"

var userHash = sync.OnceValue(func() string { return access.HashSecret(userSecret) })

// startGuarded runs a site with users: web may have timestamps, ids IDs, both may have either, and
// slow takes long to check.
func startGuarded(t *testing.T) (*site, *access.Control) {
	t.Helper()
	list := strings.ReplaceAll(`{"users": {
		"web": {"roles": ["timestamps"], "secrets": ["HASH"]}, "ids": {"roles": ["ids"], "secrets": ["HASH"]}, "both": {"roles": ["timestamps", "ids"], "secrets": ["HASH"]},
		"few": {"roles": ["live"], "secrets": ["HASH"], "limits": {"requests": 1}},
		"slow": {"roles": ["none"], "secrets": ["HASH", "HASH", "HASH", "HASH"]}
	}}`, "HASH", userHash())
	file := filepath.Join(t.TempDir(), "users.json")
	if err := os.WriteFile(file, []byte(list), 0o600); err != nil {
		t.Fatal(err)
	}
	users, err := access.Open(access.Config{File: file, Setting: "ACL_FILE"})
	if err != nil {
		t.Fatal(err)
	}
	return startFront(t, func(c *config) {
		c.front.Loop = c.gate.Loop
		c.gate.Admit = func(lc *loop.Conn) bool {
			s, err := users.Open(lc.Remote().Addr(), nil, access.ClientPool)
			lc.SetTag(&s)
			return err == nil
		}
		c.web = append(c.web, func(c *web.Config) { c.Access = users })
	}), users
}

// by is a request of a user.
func by(target, user, secret string) string {
	return "GET " + target + " HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer " + user + "~" + secret + "\r\n\r\n"
}

const idsTarget = "/api/snowflake"

// TestGuard_EachRequestHasItsOwnAnswerWhereverItIsSplit between two reads.
func TestGuard_EachRequestHasItsOwnAnswerWhereverItIsSplit(t *testing.T) {
	t.Parallel()
	s, _ := startGuarded(t)
	for _, tt := range []struct {
		requests []string
		want     string
	}{
		{[]string{by("/timestamp", "web", userSecret), by(idsTarget, "ids", userSecret), by("/timestamp", "both", userSecret), plain, by("/timestamp", "web", userSecret)}, "200 200 200 401 200 200"},
		{[]string{by("/timestamp", "both", userSecret), by("/timestamp", "ids", userSecret), of(idsTarget), by(idsTarget, "both", userSecret)}, "200 403 401 200 200"},
		{[]string{by("/timestamp", "web", userSecret), by("/timestamp", "web", "wrong"), by("/timestamp", "web", userSecret)}, "200 401 200 200"},
	} {
		all := strings.Join(tt.requests, "") + sentinel
		for i := range all {
			replies, rest := read(s.exchange(t, false, all[:i], all[i:]))
			var got []string
			for _, r := range replies {
				got = append(got, strings.Fields(r.Status)[1])
			}
			if strings.Join(got, " ") != tt.want || rest != "" {
				t.Fatalf("split at %d: %q%s, want %s", i, got, rest, tt.want)
			}
		}
	}
}

// TestGuard_KeepsConnectionsOfUsers on the fast path, also when they alternate.
func TestGuard_KeepsConnectionsOfUsers(t *testing.T) {
	s, _ := startGuarded(t)
	c := dial(t, s)
	for range 10 {
		_, _ = io.WriteString(c, by("/timestamp", "web", userSecret)+by(idsTarget, "ids", userSecret)+by(idsTarget, "both", userSecret)+by("/timestamp", "both", userSecret))
	}
	in := bufio.NewReader(c)
	for i := range 40 {
		expect(t, in, fmt.Sprint("request ", i))
	}
	if n := s.detached.Load(); n != 0 {
		t.Errorf("%d connections were detached", n)
	}
}

// TestGuard_ARequestCountsOnce, also if the standard servers answer it.
func TestGuard_ARequestCountsOnce(t *testing.T) {
	s, _ := startGuarded(t)
	replies, _ := read(s.exchange(t, false, by("/live/unknown", "few", userSecret)+sentinel))
	if len(replies) < 1 || !strings.Contains(replies[0].Status, " 404 ") {
		t.Errorf("%+v", replies)
	}
}

// TestGuard_EmptyCredentialsAreNotNone: the standard servers refuse them, also where a request without any may be answered.
func TestGuard_EmptyCredentialsAreNotNone(t *testing.T) {
	s := startFront(t)
	c := dial(t, s)
	_, _ = io.WriteString(c, with("Authorization:"))
	expect(t, bufio.NewReader(c), "the request")
	if n := s.detached.Load(); n != 1 {
		t.Errorf("%d connections were detached, want 1", n)
	}
}

// TestGuard_ChecksWhatTheClientHasSent while other input takes its place in the loop's buffer.
func TestGuard_ChecksWhatTheClientHasSent(t *testing.T) {
	s, users := startGuarded(t)
	for _, user := range []string{"ids", "both"} { // whose credentials are not known yet
		checked := make(chan error, 1)
		guess := access.Credentials{Name: "slow", Secret: access.NewSecret()}
		if now, err := users.Request(netip.MustParseAddr("192.0.2.1"), nil, true).Authenticate(guess, func(err error) { checked <- err }); now {
			t.Fatal(err)
		}
		c, other := dial(t, s), dial(t, s) // c waits for slow
		_, _ = io.WriteString(c, by(idsTarget, user, userSecret))
		s.do(func() {})
		_, _ = io.WriteString(other, strings.TrimSuffix(by(idsTarget, user, strings.Repeat("x", len(userSecret))), "\r\n"))
		s.do(func() {})
		expect(t, bufio.NewReader(c), "the answer to what was sent")
		<-checked
		if n := s.detached.Load(); n != 0 {
			t.Errorf("the credentials of %s were wrong at first", user)
		}
	}
}

// expect reads an answer that is a success.
func expect(t *testing.T, in *bufio.Reader, what string) {
	t.Helper()
	answer, err := http.ReadResponse(in, nil)
	if err != nil {
		t.Fatal(err)
	}
	body, err := io.ReadAll(answer.Body)
	if err != nil || answer.StatusCode != 200 {
		t.Errorf("%s: %d %s, %v", what, answer.StatusCode, body, err)
	}
}
