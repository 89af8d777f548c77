package server_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/client"
	"github.com/isotone/isotone/internal/check/await"
	"github.com/isotone/isotone/internal/check/rig"
	"github.com/isotone/isotone/internal/check/testnode"
)

// quotaUsers is a list of two users that may have so many sessions and locks each.
func quotaUsers(sessions, locks int) string {
	user := fmt.Sprintf(`{"roles": ["locks"], "secrets": ["HASH"], "limits": {"sessions": %d, "locks": %d}}`, sessions, locks)
	return `{"users": {"shop": ` + user + `, "other": ` + user + `}}`
}

// TestSessionQuota_OverTheRedisProtocol: what is new is refused, and nothing else.
func TestSessionQuota_OverTheRedisProtocol(t *testing.T) {
	t.Parallel()
	n := testnode.Guarded(t, quotaUsers(2, 2), nil)
	as := func(user string) *rig.RedisConn {
		c := rig.DialRedis(t, n.Client, nil)
		c.Does("AUTH "+user+" "+rig.Secret, "+OK")
		return c
	}
	const bind = "SESSION BIND 00000000000000a%d %d TTL 60000"
	first, second, third, other := as("shop"), as("shop"), as("shop"), as("other")
	first.Does(fmt.Sprintf(bind, 1, 1), "*4")
	second.Does(fmt.Sprintf(bind, 2, 1), "*4")
	const tooMany = `-TRYAGAIN quota_exceeded: user shop may have 2 sessions, and has as many; end one, or have an operator raise the limit "sessions"`
	third.Does(fmt.Sprintf(bind, 3, 1), tooMany)
	other.Does(fmt.Sprintf(bind, 4, 1), "*4")

	const tooManyLocks = `-TRYAGAIN quota_exceeded: a session of user shop may hold or wait for 2 locks, and does; release one, or have an operator raise the limit "locks"`
	first.Does("LOCK ACQUIRE x", "*2")
	first.Does("LOCK ACQUIRE y", "*2")
	first.Does("LOCK ACQUIRE z", tooManyLocks)
	first.Does("LOCK ACQUIRE x", "*2")
	second.Does("LOCK ACQUIRE x WAIT 0", "*2")
	second.Does("LOCK ACQUIRE y WAIT 0", "*2")
	second.Does("LOCK ACQUIRE z WAIT 0", tooManyLocks)
	first.Does("SESSION KEEP", "+OK")
	second.Does("LOCK CANCEL x", "+OK")
	second.Does("LOCK ACQUIRE z", "*2")

	n.Users.Write(quotaUsers(1, 1))
	await.Until(t, "the list is in force", func() bool {
		third.Send(fmt.Sprintf(bind, 3, 1))
		return strings.Contains(third.Receive(), "may have 1 sessions")
	})
	again := as("shop")
	again.Does(fmt.Sprintf(bind, 1, 2), "*4")
	again.Does("LOCK ACQUIRE x", "*2")
	again.Does("LOCK ACQUIRE w", "-TRYAGAIN quota_exceeded")
	again.Does("SESSION CLOSE", "+OK")
	third.Does(fmt.Sprintf(bind, 3, 1), "-TRYAGAIN quota_exceeded")
	second.Does("SESSION CLOSE", "+OK")
	third.Does(fmt.Sprintf(bind, 3, 1), "*4")
	third.Does("LOCK ACQUIRE x", "*2")
}

// TestSessionQuota_OverHTTP, where each request speaks for itself.
func TestSessionQuota_OverHTTP(t *testing.T) {
	t.Parallel()
	n := testnode.Guarded(t, quotaUsers(1, 1), nil)
	asks := func(user, method, target string) (status int, body string) {
		await.Until(t, method+" "+target+" is answered", func() bool {
			r, err := http.NewRequestWithContext(t.Context(), method, "http://"+n.Client+target, nil)
			if err != nil {
				t.Fatal(err)
			}
			r.Header.Set("Authorization", rig.Bearer(user, rig.Secret))
			a, err := http.DefaultClient.Do(r)
			if err != nil {
				t.Fatal(err)
			}
			defer a.Body.Close()
			text, _ := io.ReadAll(a.Body)
			status, body = a.StatusCode, string(text)
			return status != http.StatusServiceUnavailable
		})
		return status, body
	}
	const first, second, other, bind = "/sessions/00000000000000b1", "/sessions/00000000000000b2", "/sessions/00000000000000b3", "?ttl=60s&epoch=1"
	for _, step := range []struct {
		user, method, target string
		status               int
		says                 string
	}{
		{"shop", "PUT", first + bind, 200, ""},
		{"shop", "PUT", second + bind, 429, "user shop may have 1 sessions"},
		{"shop", "PUT", second + bind, 429, "user shop may have 1 sessions"},
		{"other", "PUT", other + bind, 200, ""},
		{"shop", "PUT", "/locks/x?session=00000000000000b1", 200, ""},
		{"shop", "PUT", "/locks/y?session=00000000000000b1", 429, "a session of user shop may hold or wait for 1 locks"},
		{"shop", "PUT", "/locks/x?session=00000000000000b1", 200, ""},
		{"other", "PUT", "/locks/y?session=00000000000000b3", 200, ""},
		{"shop", "PUT", first + bind, 200, `"name":"x"`},
		{"shop", "DELETE", first, 200, ""},
		{"shop", "PUT", second + bind, 200, ""},
		{"shop", "PUT", "/locks/z?session=00000000000000b2", 200, ""},
	} {
		if status, body := asks(step.user, step.method, step.target); status != step.status || !strings.Contains(body, step.says) {
			t.Errorf("%s: %s %s: %d %s, want %d, %q", step.user, step.method, step.target, status, body, step.status, step.says)
		}
	}
	if got := metric(t, n, `isotone_user_refusals_total{reason="quota",user="shop"}`); got != 3 {
		t.Errorf("%v refusals are counted, want 3: two sessions and a lock", got)
	}
}

// due is a context whose deadline passes when over is closed.
type due struct {
	context.Context
	over chan struct{}
}

func (d due) Done() <-chan struct{} { return d.over }

func (d due) Err() error {
	select {
	case <-d.over:
		return context.DeadlineExceeded
	default:
		return nil
	}
}

// TestSessionQuota_OfTheGoClient: it asks again until the context of a call is done, and says what refused it then.
func TestSessionQuota_OfTheGoClient(t *testing.T) {
	t.Parallel()
	n := testnode.Guarded(t, quotaUsers(1, 1), nil)
	var mu sync.Mutex
	refused := func() {}
	open := func() *client.Client {
		c, err := client.NewWith(t.Context(), client.Options{
			Addrs: []string{n.Client}, Credentials: client.StaticCredentials("shop", rig.Secret),
			Hooks: client.Hooks{Retried: func(_ string, err error) {
				mu.Lock()
				defer mu.Unlock()
				if errors.Is(err, isotone.ErrQuotaExceeded) {
					refused()
				}
			}},
		})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		return c
	}
	// untilRefused returns the context of a call that is refused.
	untilRefused := func() context.Context {
		over := make(chan struct{})
		mu.Lock()
		defer mu.Unlock()
		refused = sync.OnceFunc(func() { close(over) })
		return due{t.Context(), over}
	}
	s, err := open().NewSession(t.Context(), client.SessionOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Mutex("a").Lock(t.Context()); err != nil {
		t.Fatal(err)
	}
	wants := func(err error, text string) {
		t.Helper()
		if !errors.Is(err, isotone.ErrQuotaExceeded) || !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), text) {
			t.Errorf("%v, want quota_exceeded, %q", err, text)
		}
	}
	_, err = s.Mutex("b").Lock(untilRefused())
	wants(err, "a session of user shop may hold or wait for 1 locks")
	_, err = open().NewSession(untilRefused(), client.SessionOptions{})
	wants(err, "user shop may have 1 sessions")
}
