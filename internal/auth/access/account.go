package access

import (
	"net/netip"

	"github.com/isotone/isotone/internal/auth/address"
)

// Account is what sessions of clients count for: a user of the list or, without credentials, an address, as for the limits of addresses. It is safe for concurrent use.
type Account struct {
	control *Control
	user    string // "": without credentials
	addr    netip.Addr
}

// Account returns the account of the session, nil if no list of users can limit it.
func (s *Session) Account() *Account {
	if s.owner() == nil {
		return nil
	}
	a := &Account{control: s.control, user: s.user.name, addr: address.Network(s.addr)}
	if a.addr.IsLoopback() { // a program on this machine can use any of them
		a.addr = loopback
	}
	return a
}

// Name tells accounts apart: "user shop", or "address 192.0.2.1".
func (a *Account) Name() string {
	if a.user != "" {
		return "user " + a.user
	}
	return "address " + a.addr.String()
}

// Limits returns the limits in force, none for a user that is not on the list any more.
func (a *Account) Limits() Limits {
	t := a.control.table.Load()
	switch u := t.users[a.user]; {
	case a.user == "":
		return t.address
	case u != nil:
		return u.limits
	}
	return Limits{}
}

// OverQuota counts and logs that sessions or locks, as what says, were refused by the limit.
func (a *Account) OverQuota(what string) {
	tally := &a.control.anonymous
	if u := a.control.table.Load().users[a.user]; u != nil {
		tally = &u.usage.tally
	}
	tally.overQuota.Add(1)
	a.control.audit.denied("quota", a.user, a.addr, what)
}
