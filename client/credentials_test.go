package client_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/client"
	"github.com/isotone/isotone/internal/check/await"
)

// startGuardedCluster starts nodes that want a secret.
func startGuardedCluster(t testing.TB, count int, secret string) *cluster {
	c := startCluster(t, count)
	c.change(func() { c.secret = secret })
	return c
}

// authenticate answers AUTH, and everything from those that are not known; else it returns nil.
func (n *node) authenticate(args []string, known *bool) []byte {
	n.cluster.mu.Lock()
	secret := n.cluster.secret
	n.cluster.mu.Unlock()
	switch {
	case secret == "":
		return nil
	case args[0] != "AUTH" && *known:
		return nil
	case args[0] != "AUTH":
		n.mu.Lock()
		n.heard = append(n.heard, "before AUTH: "+args[0])
		n.mu.Unlock()
		return []byte("-NOAUTH Authentication required.\r\n")
	}
	n.mu.Lock()
	n.heard = append(n.heard, "AUTH "+args[1])
	n.mu.Unlock()
	if *known = args[2] == secret; !*known {
		return []byte("-WRONGPASS invalid username-password pair or user is disabled.\r\n")
	}
	return []byte("+OK\r\n")
}

// rotating is a value for Options.Credentials that can change.
type rotating struct {
	secret atomic.Pointer[string]
	asked  atomic.Int32
}

func (r *rotating) set(secret string) { r.secret.Store(&secret) }

func (r *rotating) get(context.Context) (client.Credentials, error) {
	r.asked.Add(1)
	return client.Credentials{Name: "billing", Secret: *r.secret.Load()}, nil
}

func TestCredentials_AreSentFirstOnEveryConnection(t *testing.T) {
	c := startGuardedCluster(t, 3, "hush")
	c.lead(2)
	var r rotating
	r.set("hush")
	got := c.dial(client.Options{Credentials: r.get})
	if _, err := got.Timestamps(within(t, 10*time.Second), 2); err != nil {
		t.Fatal(err)
	}
	if _, err := got.Snowflake(within(t, 10*time.Second)); err != nil {
		t.Fatal(err)
	}
	g, err := got.NewGenerator(within(t, 10*time.Second), client.GeneratorOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if err := g.Close(); err != nil {
		t.Fatal(err)
	}
	if c.nodes[2].count("AUTH billing") == 0 {
		t.Error("the leader heard no AUTH")
	}
	for i, n := range c.nodes {
		if before := n.commands("before AUTH: "); len(before) > 0 {
			t.Errorf("node %d: %q", i, before)
		}
	}
}

// TestCredentials_ThatAreRefusedFailAtOnce: the contexts have no deadline, so nothing else ends
// the wait.
func TestCredentials_ThatAreRefusedFailAtOnce(t *testing.T) {
	c := startGuardedCluster(t, 3, "hush")
	for name, credentials := range map[string]func(context.Context) (client.Credentials, error){
		"none": nil, "wrong": client.StaticCredentials("billing", "blab"), "no name": client.StaticCredentials("", "hush"),
	} {
		want := isotone.ErrUnauthorized
		if name == "no name" {
			want = isotone.ErrInvalidArgument
		}
		if _, err := client.NewWith(context.Background(), client.Options{Addrs: c.addrs(), Credentials: credentials}); !errors.Is(err, want) {
			t.Errorf("%s: %v", name, err)
		}
		lazy := c.dial(client.Options{Lazy: true, Credentials: credentials})
		if _, err := lazy.Timestamp(context.Background()); !errors.Is(err, want) {
			t.Errorf("%s, a timestamp: %v", name, err)
		}
		if _, err := lazy.In(isotone.ReadLease).Above(isotone.Timestamp{Time: 1}).Timestamps(context.Background(), 2); !errors.Is(err, want) {
			t.Errorf("%s, above a floor: %v", name, err)
		}
		if _, err := lazy.Snowflake(context.Background()); !errors.Is(err, want) {
			t.Errorf("%s, an ID: %v", name, err)
		}
		if _, err := lazy.NewGenerator(context.Background(), client.GeneratorOptions{}); !errors.Is(err, want) {
			t.Errorf("%s, a generator: %v", name, err)
		}
	}
}

// TestCredentials_ThatAreAcceptedLaterMakeItWork: without a call in between.
func TestCredentials_ThatAreAcceptedLaterMakeItWork(t *testing.T) {
	c := startGuardedCluster(t, 3, "hush")
	var r rotating
	r.set("blab")
	got := c.dial(client.Options{Lazy: true, Credentials: r.get})
	if _, err := got.Timestamp(context.Background()); !errors.Is(err, isotone.ErrUnauthorized) {
		t.Fatal(err)
	}
	if _, err := got.Snowflake(context.Background()); !errors.Is(err, isotone.ErrUnauthorized) {
		t.Fatal(err)
	}
	r.set("hush")
	await.Until(t, "timestamps and IDs", func() bool {
		_, one := got.Timestamp(context.Background())
		_, other := got.Snowflake(context.Background())
		return one == nil && other == nil
	})
}

// TestCredentials_OfALiveConnectionAreRenewed: a node that forgets who a client is fails no call,
// if the client has new credentials.
func TestCredentials_OfALiveConnectionAreRenewed(t *testing.T) {
	c := startGuardedCluster(t, 1, "old")
	var r rotating
	r.set("old")
	got := c.dial(client.Options{Credentials: r.get})
	if _, err := got.Timestamps(within(t, 10*time.Second), 2); err != nil {
		t.Fatal(err)
	}
	r.set("new")
	c.change(func() { c.secret = "new" })
	var refused atomic.Int32
	refused.Store(3)
	c.nodes[0].replies(func(args []string) ([]byte, bool) {
		if args[0] == "TS" && refused.Add(-1) >= 0 {
			return []byte("-NOAUTH Authentication required.\r\n"), true
		}
		return nil, false
	})
	await.Until(t, "calls that are refused", func() bool {
		_, err := got.Timestamps(within(t, 10*time.Second), 2)
		if err != nil && refused.Load() < 0 {
			t.Fatal(err)
		}
		return refused.Load() < 0
	})
	for range 20 {
		if _, err := got.Timestamps(within(t, 10*time.Second), 2); err != nil {
			t.Fatal(err)
		}
	}
}

// TestCredentials_ThatAreRefusedAreNotTriedWithoutPause: the bound is generous; without pauses
// there would be thousands.
// TestCredentials_OfAConnectionThatNeverAnsweredAreRenewed: a node that forgets the client right after it has accepted the
// credentials fails no call either.
func TestCredentials_OfAConnectionThatNeverAnsweredAreRenewed(t *testing.T) {
	c := startGuardedCluster(t, 1, "hush")
	got := c.dial(client.Options{Credentials: client.StaticCredentials("billing", "hush")})
	var forgotten atomic.Int32
	c.nodes[0].replies(func(args []string) ([]byte, bool) {
		return []byte("-NOAUTH Authentication required.\r\n"), args[0] == "TS" && forgotten.Add(1) <= 3
	})
	if _, err := got.Timestamps(within(t, 10*time.Second), 2); err != nil {
		t.Error(err)
	}
}

func TestCredentials_ThatAreRefusedAreNotTriedWithoutPause(t *testing.T) {
	t.Parallel()
	c := startGuardedCluster(t, 1, "hush")
	var r rotating
	r.set("blab")
	got := c.dial(client.Options{Lazy: true, Credentials: r.get})
	for end := time.Now().Add(time.Second); time.Now().Before(end); {
		if _, err := got.Timestamp(context.Background()); !errors.Is(err, isotone.ErrUnauthorized) {
			t.Fatal(err)
		}
	}
	if n := r.asked.Load(); n > 60 {
		t.Errorf("%d attempts", n)
	}
}

func TestForbidden_FailsTheCallAndKeepsTheConnection(t *testing.T) {
	c := startCluster(t, 1)
	got := c.dial(client.Options{})
	if _, err := got.Timestamps(within(t, 10*time.Second), 2); err != nil {
		t.Fatal(err)
	}
	c.nodes[0].replies(func(args []string) ([]byte, bool) {
		if args[0] == "TS" || args[0] == "WORKER" {
			return []byte("-NOPERM billing has no right to it\r\n"), true
		}
		return nil, false
	})
	pings := func() int { return c.nodes[0].count("PING") }
	connected(t, got, client.ConnsDefault) // a second one could be on its way
	before := pings()
	for range 20 {
		if _, err := got.Timestamp(context.Background()); !errors.Is(err, isotone.ErrForbidden) {
			t.Fatal(err)
		}
	}
	if _, err := got.NewGenerator(context.Background(), client.GeneratorOptions{}); !errors.Is(err, isotone.ErrForbidden) {
		t.Fatal(err)
	}
	if _, err := got.Snowflake(within(t, 10*time.Second)); err != nil {
		t.Error(err)
	}
	if _, err := got.Timestamp(context.Background()); !errors.Is(err, isotone.ErrForbidden) {
		t.Error(err)
	}
	if after := pings(); after > before+2 { // for IDs and the generator
		t.Errorf("%d new connections", after-before)
	}
}

func TestQuota_IsWaitedForWithinTheDeadline(t *testing.T) {
	t.Parallel()
	c := startCluster(t, 1)
	got := c.dial(client.Options{})
	var over atomic.Int32
	over.Store(3)
	c.nodes[0].replies(func(args []string) ([]byte, bool) {
		if (args[0] == "TS" || args[0] == "SNOWFLAKE" || args[0] == "WORKER") && over.Add(-1) >= 0 {
			return []byte("-QUOTA 10 a second; retry after 20 ms\r\n"), true
		}
		return nil, false
	})
	for name, call := range map[string]func(context.Context) error{
		"a timestamp": func(ctx context.Context) error { _, err := got.Timestamp(ctx); return err },
		"an ID":       func(ctx context.Context) error { _, err := got.Snowflake(ctx); return err },
		"a generator": func(ctx context.Context) error {
			g, err := got.NewGenerator(ctx, client.GeneratorOptions{})
			if err == nil {
				err = g.Close()
			}
			return err
		},
	} {
		over.Store(3)
		if err := call(within(t, 10*time.Second)); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		over.Store(1 << 30)
		await.Expired(t, call, func(err error) bool {
			var told *isotone.Error
			return errors.Is(err, isotone.ErrQuotaExceeded) && errors.As(err, &told) && told.RetryAfter == 20*time.Millisecond
		})
		over.Store(0)
		if err := call(within(t, 10*time.Second)); err != nil {
			t.Errorf("%s again: %v", name, err)
		}
	}
}

// TestQuota_IsNotAskedForWithoutPause: with two connections that wait for 100 ms each there are
// at most some requests; the bound is generous.
func TestQuota_IsNotAskedForWithoutPause(t *testing.T) {
	t.Parallel()
	c := startCluster(t, 1)
	got := c.dial(client.Options{})
	c.nodes[0].replies(func(args []string) ([]byte, bool) {
		return []byte("-TRYAGAIN quota_exceeded: retry after 100 ms\r\n"), args[0] == "TS"
	})
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	for range 50 {
		go func() { _, _ = got.Timestamp(ctx) }()
	}
	<-ctx.Done()
	if n := c.nodes[0].count("TS"); n > 60 {
		t.Errorf("%d requests", n)
	}
}

func TestCredentials_AreNeverPrinted(t *testing.T) {
	secret := client.Credentials{Name: "billing", Secret: "hush"}
	var text bytes.Buffer
	fmt.Fprintf(&text, "%v %+v %#v %s %q %d %x %v\n", secret, secret, secret, secret, secret, secret, secret, &secret)
	fmt.Fprintln(&text, []client.Credentials{secret}, struct{ C client.Credentials }{secret})
	slog.New(slog.NewJSONHandler(&text, nil)).Info("x", "credentials", secret)
	slog.New(slog.NewTextHandler(&text, nil)).Info("x", "credentials", secret)
	b, err := json.Marshal(secret)
	text.Write(b)
	if strings.Contains(text.String(), "hush") || strings.Contains(text.String(), "68757368") || !strings.Contains(text.String(), "billing") || err != nil {
		t.Errorf("%s, %v", &text, err)
	}
	long := strings.Repeat("hush", 1000)
	for _, bad := range []client.Credentials{{"a b", "hush"}, {"a:b", "hush"}, {strings.Repeat("n", 65), "hush"}, {"billing", long}, {"billing", ""}, {"é", "hush"}} {
		if err := bad.Validate(); !errors.Is(err, isotone.ErrInvalidArgument) || strings.Contains(err.Error(), "hush") {
			t.Errorf("%v: %v", bad, err)
		}
	}
	if err := (client.Credentials{Name: strings.Repeat("aZ9._-", 10), Secret: " \x00é"}).Validate(); err != nil {
		t.Error(err)
	}
}

// TestCredentials_AnEchoOfTheSecretIsNotPrinted: whoever answers AUTH with the secret has it, but
// not the log.
func TestCredentials_AnEchoOfTheSecretIsNotPrinted(t *testing.T) {
	c := startCluster(t, 1)
	c.nodes[0].replies(func(args []string) ([]byte, bool) {
		return fmt.Appendf(nil, "+%s\r\n", args[len(args)-1]), args[0] == "AUTH"
	})
	_, err := client.NewWith(context.Background(), client.Options{Addrs: c.addrs(), Credentials: client.StaticCredentials("billing", "hush")})
	if !errors.Is(err, isotone.ErrUnauthorized) || strings.Contains(err.Error(), "hush") {
		t.Error(err)
	}
}
