package access

import (
	"cmp"
	"context"
	"crypto/x509"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// Config configures a [Control]. The zero value gives [Local] to clients of this machine, and
// [Products] to others.
type Config struct {
	// File is a list of users, reloaded when it changes; "": there are none. Setting is its name
	// in errors.
	File, Setting string
	// Anonymous has the roles of clients without credentials, wherever they are. Nil: without
	// File, Local from this machine and Products from elsewhere; with File, none.
	Anonymous *Roles
	// Alone: all listeners of the process are bound to loopback addresses, so Local becomes Alone.
	Alone bool
	// Ended, if not nil, reports whether a client's certificate, which was verified with these chains, is no longer valid: such a
	// client has no roles. Call [Control.Renew] when its answers change.
	Ended func(chains [][]*x509.Certificate) bool
	// Log takes reloads, refused lists, and what was denied; nil discards them.
	Log *slog.Logger
	// Now is a clock that never goes back; nil: that of the process.
	Now func() time.Duration
}

// CheckEvery is how often [Control.Run] looks whether the file has changed.
const CheckEvery = time.Second

// addressLimitsDefault keeps one client from taking all workers.
var addressLimitsDefault = Limits{Workers: 256}

// Control is the list of users in force. Make it with [Open].
type Control struct {
	cfg    Config
	table  atomic.Pointer[table]
	verify *verifier
	audit  audit
	moved  moved
	// anonymous and others count those who have no tally of their own.
	anonymous, others tally
	// refusedHere counts requests of operators from loopback addresses without credentials.
	refusedHere atomic.Uint64

	addresses addresses
	shares    shares
	watched   watched

	loading sync.Mutex
	seen    string // SHA-256 of the file as last read
	refused bool   // the latest list was, and that was logged
}

// table is one list of users. It does not change.
type table struct {
	users map[string]*user
	// here and elsewhere are clients of this machine and others, without credentials.
	here, elsewhere *user
	address         Limits
	open            bool     // there is no file
	sum             string   // SHA-256 of the file
	edition         *edition // tells lists apart: copies of a table have the same
}

// edition identifies one reading of the list of users, by its address; it is not empty, as empty structs may share one.
type edition struct{ _ byte }

// Open reads the list of users. Its error begins with the setting, and names everything that is
// wrong with the list.
func Open(cfg Config) (*Control, error) {
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	if cfg.Now == nil {
		start := time.Now()
		cfg.Now = func() time.Duration { return time.Since(start) }
	}
	c := &Control{cfg: cfg, addresses: newAddresses()}
	c.audit = audit{log: cfg.Log, now: cfg.Now}
	c.verify = newVerifier(c)
	t, err := c.read()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", cfg.Setting, err)
	}
	c.use(t)
	return c, nil
}

// read returns the list as it is now, or nil if its content is that of the last read.
func (c *Control) read() (*table, error) {
	t := &table{users: map[string]*user{}, address: addressLimitsDefault, open: c.cfg.File == "", edition: new(edition)}
	here, elsewhere := Roles(0), Roles(0)
	if t.open {
		here, elsewhere = Local, Products
		if c.cfg.Alone {
			here = Alone
		}
	}
	if c.cfg.Anonymous != nil {
		here, elsewhere = *c.cfg.Anonymous, *c.cfg.Anonymous
	}
	t.here, t.elsewhere = &user{roles: here}, &user{roles: elsewhere}
	if t.open {
		return t, nil
	}
	text, err := readFile(c.cfg.File)
	if err != nil {
		c.seen = ""
		return nil, err
	}
	if t.sum = sumOf(text); t.sum == c.seen {
		return nil, nil
	}
	c.seen = t.sum
	var address *Limits
	if t.users, address, err = parseList(text); err != nil {
		return nil, fmt.Errorf("%s: %w", c.cfg.File, err)
	}
	if address != nil {
		t.address = *address
	}
	return t, nil
}

// readFile reads a file of bounded size.
func readFile(name string) ([]byte, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, fileBytesMax+1))
	if err == nil && len(text) > fileBytesMax {
		err = fmt.Errorf("%s has more than %d bytes", name, fileBytesMax)
	}
	return text, err
}

// use puts t in force. What users have used of their limits goes over to it.
func (c *Control) use(t *table) {
	old := c.table.Load()
	for name, u := range t.users {
		if old != nil && old.users[name] != nil {
			u.usage = old.users[name].usage
			u.usage.limits.Store(&u.limits)
		} else {
			u.usage = newUsage(u.limits)
		}
	}
	c.addresses.setLimits(t.address)
	c.table.Store(t)
	c.verify.forget()
	c.watched.check()
}

// Renew has the rights of all sessions looked up again. It keeps verified credentials, as the list is the same.
func (c *Control) Renew() {
	c.loading.Lock()
	defer c.loading.Unlock()
	t := *c.table.Load()
	c.table.Store(&t)
	c.watched.check()
}

// renewChecks is after how many checks of the file all rights are looked up again, so that those of a
// certificate end within a minute of it.
const renewChecks = int(time.Minute / CheckEvery)

// Run reloads the list when its file has changed, until ctx ends. A list that cannot be used is
// logged, and changes nothing.
func (c *Control) Run(ctx context.Context) {
	tick := time.NewTicker(CheckEvery)
	defer tick.Stop()
	for n := 1; ; n++ {
		if n%renewChecks == 0 {
			c.Renew()
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			c.Check()
			c.addresses.trim(c.cfg.Now())
		}
	}
}

// Check reloads the list if the content of its file has changed, whatever its size and times are.
func (c *Control) Check() {
	c.loading.Lock()
	defer c.loading.Unlock()
	if c.cfg.File == "" {
		return
	}
	t, err := c.read()
	switch {
	case err == nil && t == nil:
		return
	case err == nil && t.sum == c.table.Load().sum: // for a while it had other content, or was unreadable
		c.refused = false
		return
	case err != nil:
		if !c.refused {
			c.cfg.Log.Error("the list of users cannot be used; the one before stays in force", "setting", c.cfg.Setting, "err", err)
		}
		c.refused = true
		return
	}
	c.refused = false
	c.auditChange(c.table.Load(), t)
	c.use(t)
}

// InForce describes the list in force: the SHA-256 of its file, as in a [Summary], and how many
// users it has. refused: the file has another list by now, which cannot be used. Without a file,
// sum is empty.
func (c *Control) InForce() (sum string, users int, refused bool) {
	c.loading.Lock()
	defer c.loading.Unlock()
	t := c.table.Load()
	return t.sum, len(t.users), c.refused
}

// auditChange logs what differs between two lists, by name only.
func (c *Control) auditChange(old, t *table) {
	changed := func(name string) string {
		a, b := old.users[name], t.users[name]
		switch {
		case a == nil:
			return "added " + name + " (" + b.roles.String() + ")"
		case b == nil:
			return "removed " + name
		case a.roles != b.roles:
			return "roles of " + name + ": " + b.roles.String()
		case !slices.EqualFunc(a.secrets, b.secrets, func(x, y hash) bool { return string(x.sum) == string(y.sum) }):
			return "secrets of " + name
		case a.limits != b.limits:
			return "limits of " + name
		case !a.orders.equal(&b.orders):
			return "timelines of " + name + ": " + b.orders.String()
		case !slices.Equal(a.names, b.names):
			return "locks and groups of " + name + ": " + b.names.String()
		}
		return ""
	}
	var changes []string
	names := slices.Sorted(maps.Keys(old.users))
	for _, name := range slices.Sorted(maps.Keys(t.users)) {
		if old.users[name] == nil {
			names = append(names, name)
		}
	}
	for _, name := range names {
		if text := changed(name); text != "" {
			changes = append(changes, text)
		}
	}
	c.cfg.Log.Info("audit: the list of users has changed", "setting", c.cfg.Setting, "changes", changes[:min(len(changes), namesShown)], "more", max(0, len(changes)-namesShown))
}

// anonymous returns who a client without credentials is, on this machine or elsewhere.
func (t *table) anonymous(here bool) *user {
	if here {
		return t.here
	}
	return t.elsewhere
}

// AnonymousIsAdmin reports whether a client of this machine without credentials is an operator. It does not change.
func (c *Control) AnonymousIsAdmin() bool { return c.table.Load().here.roles&Admin != 0 }

// revoked is who a client is whose certificate has ended or was revoked, whatever secret it has.
var revoked = &user{}

// certified returns who a client with a verified certificate of that name is: the user of that
// name, or without a list somebody with all roles, whom the authority of TLS_CLIENT_CA vouches
// for.
func (t *table) certified(name string, here bool) *user {
	if t.open {
		return &user{name: name, roles: All}
	}
	return cmp.Or(t.users[name], t.anonymous(here))
}
