package access_test

import (
	"encoding/base64"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/crypto/argon2"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/auth/access"
)

const aliceOnly = `{"users": {"alice": {"roles": ["all"], "secrets": ["HASH"]}}}`

// quick returns a hash of a secret at the least cost that lists accept, for tests with many checks.
func quick(secret string) string {
	salt, encode := []byte("salt of tests"), base64.RawStdEncoding.EncodeToString
	return "$argon2id$v=19$m=8,t=1,p=1$" + encode(salt) + "$" + encode(argon2.IDKey([]byte(secret), salt, 1, 8, 1, 32))
}

// aliceIsQuick is a list whose user has a quick hash.
var aliceIsQuick = `{"users": {"alice": {"roles": ["all"], "secrets": ["` + quick(secret) + `"]}}}`

// guess sends wrong credentials from an address, and does not wait for the result.
func guess(t *testing.T, c *access.Control, addr netip.Addr, i int, done func(error)) (now bool, err error) {
	t.Helper()
	return session(t, c, addr).Authenticate(access.Credentials{Name: "alice", Secret: fmt.Sprint("guess", i)}, done)
}

// TestVerify_GuessesWaitForOthers: an address that never guessed is checked before the guesses
// of others that came first, and gets a place in a queue that they have filled.
func TestVerify_GuessesWaitForOthers(t *testing.T) {
	t.Parallel()
	const queue, addresses = 64, 10
	c := open(t, access.Config{File: users(t, "", aliceIsQuick)})
	begun, release := make(chan struct{}), make(chan struct{})
	if now, err := guess(t, c, elsewhere, 0, func(error) { close(begun); <-release }); now {
		t.Fatal(err)
	}
	<-begun // nothing is checked until release
	var checked, dropped atomic.Int64
	waiting := 0
	for i := range 200 {
		now, err := guess(t, c, netip.AddrFrom4([4]byte{198, 51, 100, byte(i % addresses)}), 1+i, func(err error) {
			if errors.Is(err, isotone.ErrOverloaded) {
				dropped.Add(1)
			} else {
				checked.Add(1)
			}
		})
		if now && !errors.Is(err, isotone.ErrOverloaded) {
			t.Errorf("guess %d: %v", i, err)
		}
		if !now {
			waiting++
		}
	}
	if waiting != queue {
		t.Errorf("%d guesses wait, want %d", waiting, queue)
	}
	proven := make(chan error, 1)
	var before int64
	now, err := session(t, c, here).Authenticate(access.Credentials{Name: "alice", Secret: secret}, func(err error) {
		before = checked.Load()
		proven <- err
	})
	if now {
		t.Fatalf("right credentials of an address without guesses: %v", err)
	}
	close(release)
	if err := <-proven; err != nil || before > addresses {
		t.Errorf("right credentials: %v, after %d guesses of %d addresses", err, before, addresses)
	}
	wait(t, func() bool { return checked.Load()+dropped.Load() == queue })
	if dropped.Load() != 1 {
		t.Errorf("%d guesses made room, want 1", dropped.Load())
	}
}

// TestVerify_OneCheckForAClientThatStarts with many connections.
func TestVerify_OneCheckForAClientThatStarts(t *testing.T) {
	c := open(t, access.Config{File: users(t, "", aliceOnly)})
	var right atomic.Int64
	const connections = 500
	for range connections {
		now, err := session(t, c, elsewhere).Authenticate(access.Credentials{Name: "alice", Secret: secret}, func(err error) {
			if err == nil {
				right.Add(1)
			}
		})
		if now && err != nil {
			t.Fatal(err)
		}
		if now {
			right.Add(1)
		}
	}
	wait(t, func() bool { return right.Load() == connections })
}

// TestVerify_GuessesOfANetworkCountTogether: a client has all addresses of its /64.
func TestVerify_GuessesOfANetworkCountTogether(t *testing.T) {
	t.Parallel()
	c := open(t, access.Config{File: users(t, "", aliceIsQuick)})
	for i := range 20 {
		if err := prove(t, session(t, c, netip.MustParseAddr(fmt.Sprintf("2001:db8::%x", i+1))), "alice", fmt.Sprint("guess", i)); !errors.Is(err, isotone.ErrUnauthorized) {
			t.Fatal(err)
		}
	}
	if err := prove(t, session(t, c, netip.MustParseAddr("2001:db8::ffff")), "alice", "guess"); err == nil || !strings.Contains(err.Error(), "too many wrong") {
		t.Errorf("the next address of the network: %v", err)
	}
	if err := prove(t, session(t, c, netip.MustParseAddr("2001:db8:0:1::1")), "alice", secret); err != nil {
		t.Errorf("another network: %v", err)
	}
}

func wait(t *testing.T, done func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !done(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("not within a minute")
		}
	}
}
