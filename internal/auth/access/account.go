package access

import (
	"net/netip"

	"github.com/isotone/isotone/internal/auth/address"
)

// Account is whom sessions of clients count for: a user of the list, or without credentials an address, as limits of addresses count it. It is safe for concurrent use.
type Account struct {
	control *Control
	user    string // "": without credentials
	addr    netip.Addr
}

// Account returns whom sessions count for, nil if none are limited, whatever the list says.
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

// OverSessions counts and logs that a session was refused by the limit.
func (a *Account) OverSessions() {
	tally := &a.control.anonymous
	if u := a.control.table.Load().users[a.user]; u != nil {
		tally = &u.usage.tally
	}
	tally.overQuota.Add(1)
	a.control.audit.denied("quota", a.user, a.addr, "sessions")
}
