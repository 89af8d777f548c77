package access_test

import (
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/isotone/isotone/internal/auth/access"
)

// modelUser is a user as the model knows him: roles, and which of the secrets "0", "1" and "2" are on the list.
type modelUser struct {
	roles   access.Roles
	secrets []int
}

// modelSession is a session, and what the model knows of it.
type modelSession struct {
	*access.Session
	here, private bool
	cert          string // the name in its certificate
	name          string // who has authenticated, with which secret
	secret        int
}

// modelWatch is a watch, and whom it is for.
type modelWatch struct {
	of   modelSession
	role access.Roles
	lost atomic.Int32 // how often it has said so
	gone bool         // by the model
}

// model is what docs/security.md says, in a few lines.
type model struct {
	users     map[string]modelUser
	open      bool // no list
	alone     bool
	anonymous *access.Roles
	revoked   map[string]bool
}

// rolesOf returns the roles of a session.
func (m *model) rolesOf(s *modelSession) access.Roles {
	if s.cert != "" && m.revoked[s.cert] {
		return 0
	}
	if u, ok := m.users[s.name]; ok && s.name != "" && slices.Contains(u.secrets, s.secret) {
		return u.roles
	}
	if s.cert != "" {
		if u, ok := m.users[s.cert]; ok {
			return u.roles
		}
		if m.open {
			return access.All
		}
	}
	switch {
	case m.anonymous != nil:
		return *m.anonymous
	case !m.open:
		return 0
	case s.here && m.alone:
		return access.Alone
	case s.here:
		return access.Local
	}
	return access.Products
}

// TestModel_NobodyHasARightThatTheModelDoesNotGive after any sequence of connections, authentications, changes of the list and
// revocations; and who watches for the loss of a role is told.
func TestModel_NobodyHasARightThatTheModelDoesNotGive(t *testing.T) {
	t.Parallel()
	secrets, hashes := []string{"secret-zero", "secret-one", "secret-two"}, make([]string, 3)
	for i, s := range secrets {
		hashes[i] = quick(s)
	}
	names := []string{"alice", "bob"}
	for seed := range uint64(12) {
		rng := rand.New(rand.NewPCG(seed, 1))
		m := &model{users: map[string]modelUser{}, revoked: map[string]bool{}, open: seed%4 == 0, alone: rng.IntN(2) == 0}
		cfg := access.Config{Alone: m.alone, Ended: func(chains [][]*x509.Certificate) bool { return m.revoked[chains[0][0].Subject.CommonName] }}
		if rng.IntN(3) == 0 {
			roles := access.Roles(rng.IntN(int(access.All) + 1))
			m.anonymous, cfg.Anonymous = &roles, &roles
		}
		file := ""
		write := func() {
			var list []string
			clear(m.users)
			for _, name := range names {
				if rng.IntN(4) == 0 {
					continue
				}
				u := modelUser{roles: access.Roles(rng.IntN(int(access.All) + 1))}
				var texts []string
				for i := range secrets {
					if rng.IntN(2) == 0 {
						u.secrets, texts = append(u.secrets, i), append(texts, `"`+hashes[i]+`"`)
					}
				}
				roles := `"` + strings.ReplaceAll(u.roles.String(), ",", `", "`) + `"`
				m.users[name] = u
				list = append(list, fmt.Sprintf(`"%s": {"roles": [%s], "secrets": [%s]}`, name, roles, strings.Join(texts, ", ")))
			}
			file = users(t, file, `{"users": {`+strings.Join(list, ", ")+`}}`)
		}
		if !m.open {
			write()
			cfg.File = file
		}
		c := open(t, cfg)
		var all []*modelSession
		var watches []*modelWatch
		for step := range 60 {
			what := "connect"
			switch k := rng.IntN(10); {
			case k < 3 || len(all) == 0:
				s := &modelSession{here: rng.IntN(2) == 0, private: rng.IntN(2) == 0, secret: -1}
				addr := elsewhere
				if s.here {
					addr = netip.MustParseAddr("127.0.0.1")
				}
				var cert [][]*x509.Certificate
				if rng.IntN(3) == 0 {
					s.cert = append(names, "carol")[rng.IntN(3)]
					cert = chains(&x509.Certificate{Subject: pkix.Name{CommonName: s.cert}, NotAfter: time.Now().Add(time.Hour)})
				}
				s.Session = c.Request(addr, cert, s.private)
				if s.private = s.private || s.here; s.here && rng.IntN(2) == 0 {
					s.Elsewhere()
					s.here = false
				}
				all = append(all, s)
			case k < 5:
				s := all[rng.IntN(len(all))]
				name, secret := names[rng.IntN(2)], rng.IntN(3)
				what = "authenticate"
				err := prove(t, s.Session, name, secrets[secret])
				if right := s.private && slices.Contains(m.users[name].secrets, secret); (err == nil) != right {
					if !strings.Contains(fmt.Sprint(err), "too many wrong credentials") {
						t.Fatalf("seed %d, step %d: %s with secret %d: %v", seed, step, name, secret, err)
					}
				}
				if err == nil {
					s.name, s.secret = name, secret
				}
			case k < 6:
				what = "reset"
				s := all[rng.IntN(len(all))]
				s.Reset()
				s.name, s.secret = "", -1
			case k < 8:
				if what = "change the list"; !m.open {
					write()
					c.Check()
				}
			case k < 9:
				what = "revoke"
				name := append(names, "carol")[rng.IntN(3)]
				m.revoked[name] = !m.revoked[name]
				c.Renew()
			default:
				what = "watch"
				s := all[rng.IntN(len(all))]
				if w := (&modelWatch{of: *s, role: access.Roles(1) << rng.IntN(7)}); s.May(w.role) {
					t.Cleanup(s.Watch(w.role, func() { w.lost.Add(1) }))
					watches = append(watches, w)
				}
			}
			for _, w := range watches {
				w.gone = w.gone || m.rolesOf(&w.of)&w.role == 0
				if got := w.lost.Load(); got > 1 || (got == 1) != w.gone {
					t.Fatalf("seed %d, step %d (%s): a watch of %v was told %d times; gone: %v", seed, step, what, w.role, got, w.gone)
				}
			}
			for i, s := range all {
				want := m.rolesOf(s)
				for role := access.Timestamps; role <= access.Frontier; role <<= 1 {
					if s.May(role) != (want&role != 0) || (s.Require(role) == nil) != (want&role != 0) {
						t.Fatalf("seed %d, step %d (%s): session %d has %v: %v, want roles %v", seed, step, what, i, role, s.May(role), want)
					}
				}
				if s.MayAnything() != (want != 0) {
					t.Fatalf("seed %d, step %d (%s): session %d may anything: %v, want roles %v", seed, step, what, i, s.MayAnything(), want)
				}
			}
		}
	}
}
