package access

import (
	"crypto/x509"
	"math"
	"net/netip"
	"strings"
	"time"

	"github.com/isotone/isotone"
)

// Session is whom one connection speaks for, and what it may do. The zero value may do
// everything: it belongs to a front without a [Control].
type Session struct {
	control *Control
	table   *table // that user is of
	user    *user
	addr    netip.Addr
	address *usage // that of addr; nil: unlimited
	counted *usage // the user's usage that has this connection in it
	pool    Pool
	chains  [][]*x509.Certificate // those of the client's certificate, or none
	cert    string                // the name in it
	name    string                // who has authenticated with a secret
	proof   string                // the hash of that secret in the list
	closed  bool
	// elsewhere: the client may not be on this machine, although addr is.
	elsewhere bool
	// private: nobody on the way can read what the client sends.
	private bool
	// operator has all roles, whatever the list says; see [Control.Operator].
	operator *user
}

// Open returns a session for a connection from addr in a pool. Cert is the client's verified certificate,
// or nil. The error matches isotone.ErrQuotaExceeded if the address has too many connections.
// The caller calls Close when the connection has ended, unless there was an error. A nil Control
// gives the zero Session.
func (c *Control) Open(addr netip.Addr, chains [][]*x509.Certificate, p Pool) (Session, error) {
	if c == nil {
		return Session{}, nil
	}
	s := Session{control: c, addr: addr.Unmap(), chains: chains, cert: CertificateName(leafOf(chains)), pool: p}
	s.private = s.addr.IsLoopback()
	s.address = c.addresses.open(s.addr, p, &c.shares)
	if s.address == nil {
		return Session{}, c.overConnections(s.addr)
	}
	s.resolve()
	return s, nil
}

// Request returns a session for one request from addr, on a connection that was counted or is
// bounded elsewhere. Private says that it came within TLS. It needs no Close.
func (c *Control) Request(addr netip.Addr, chains [][]*x509.Certificate, private bool) *Session {
	if c == nil {
		return &Session{}
	}
	s := &Session{control: c, addr: addr.Unmap(), chains: chains, cert: CertificateName(leafOf(chains)), closed: true}
	s.private = private || s.addr.IsLoopback()
	s.address = c.addresses.find(s.addr)
	s.resolve()
	return s
}

// Operator returns a session with all roles for somebody who has proven elsewhere to be an operator: by access to the
// Unix socket in the data directory, or to another member. Who is written into the log. It needs no Close.
func (c *Control) Operator(who string) *Session {
	s := &Session{control: c, closed: true, private: true, operator: &user{name: who, roles: All}}
	if c == nil {
		return s
	}
	s.resolve()
	return s
}

// Elsewhere says that the client may be on another machine, or be a web page, although the connection is from this one: a
// proxy or a browser is in between.
func (s *Session) Elsewhere() {
	if s.control != nil && s.addr.IsLoopback() {
		s.elsewhere = true
		s.resolve()
	}
}

func (c *Control) overConnections(addr netip.Addr) error {
	c.audit.denied("quota", "", addr, "connections")
	return &isotone.Error{Code: isotone.CodeQuotaExceeded, Message: "too many connections from this address", RetryAfter: time.Second}
}

// Close ends what Open began. It may be called again.
func (s *Session) Close() {
	if s.control == nil || s.closed {
		return
	}
	s.closed = true
	s.address.connect(s.pool, -1)
	if s.counted != nil {
		s.counted.connect(s.pool, -1)
	}
}

// Ended is Close, as the tag of a connection of a loop.
func (s *Session) Ended() { s.Close() }

// unlimited is the zero Session. Nothing changes it, so all can share it.
var unlimited Session

// Of returns the session that a connection has as its tag, or the zero one.
func Of(tag any) *Session {
	if s, ok := tag.(*Session); ok {
		return s
	}
	return &unlimited
}

// SetCertificate is called once a handshake has shown the client's certificate, with the chains that verify it.
func (s *Session) SetCertificate(chains [][]*x509.Certificate) {
	if s.control != nil {
		s.chains, s.cert = chains, CertificateName(leafOf(chains))
		s.resolve()
	}
}

// resolve looks the user up in the list in force.
func (s *Session) resolve() {
	t := s.control.table.Load()
	s.table = t
	switch {
	case s.operator != nil:
		s.user = s.operator
	case len(s.chains) > 0 && (time.Now().After(leafOf(s.chains).NotAfter) || s.control.cfg.Ended != nil && s.control.cfg.Ended(s.chains)):
		s.user = revoked
	case s.name != "" && t.users[s.name].accepts(s.proof):
		s.user = t.users[s.name]
	case s.cert != "":
		s.user = t.certified(s.cert, s.isHere())
	default:
		s.user = t.anonymous(s.isHere())
	}
	if s.counted != s.user.usage && !s.closed {
		if s.counted != nil {
			s.counted.connect(s.pool, -1)
		}
		if s.counted = s.user.usage; s.counted != nil {
			s.counted.connect(s.pool, 1)
		}
	}
}

// leafOf returns the certificate that chains verify, nil if there are none.
func leafOf(chains [][]*x509.Certificate) *x509.Certificate {
	if len(chains) == 0 || len(chains[0]) == 0 {
		return nil
	}
	return chains[0][0]
}

// isHere reports whether the client is on this machine.
func (s *Session) isHere() bool { return s.addr.IsLoopback() && !s.elsewhere }

// refresh follows a list that has changed.
func (s *Session) refresh() {
	if s.table != s.control.table.Load() {
		s.resolve()
	}
}

// Name returns the user's name; "" without credentials.
func (s *Session) Name() string {
	if s.control == nil {
		return ""
	}
	s.refresh()
	return s.user.name
}

// Addr returns the client's address; the zero Addr if it is not known.
func (s *Session) Addr() netip.Addr { return s.addr }

// Version identifies the list of users in force.
type Version struct{ of *table }

// Version returns the list in force. Credentials that were checked with another have to be
// checked again.
func (s *Session) Version() Version {
	if s.control == nil {
		return Version{}
	}
	return Version{s.control.table.Load()}
}

// Limited reports whether requests count for a quota.
func (s *Session) Limited() bool { return s.limited() != nil }

// May reports whether the session has all of the roles. It is cheap: two comparisons unless the
// list has changed.
func (s *Session) May(roles Roles) bool {
	if s.control == nil {
		return true
	}
	if s.table != s.control.table.Load() {
		s.resolve()
	}
	return s.user.roles&roles == roles
}

// MayAnything reports whether the session has any role.
func (s *Session) MayAnything() bool {
	return s.control == nil || s.May(0) && s.user.roles != 0
}

// Require returns nil if the session has all of the roles, and otherwise an error that matches
// isotone.ErrUnauthorized, if credentials could help, or isotone.ErrForbidden. It is logged.
func (s *Session) Require(roles Roles) error {
	if s.May(roles) {
		return nil
	}
	s.tally().lackedRole.Add(1)
	s.control.audit.denied("role", s.user.name, s.addr, (roles &^ s.user.roles).String())
	if roles&Admin != 0 && s.user.name == "" && s.addr.IsLoopback() {
		s.control.refusedHere.Add(1)
	}
	if s.user.name != "" {
		return isotone.Errorf(isotone.CodeForbidden, "user %s lacks the role %s", s.user.name, roles&^s.user.roles)
	}
	hint := "see ACL_FILE and ANONYMOUS"
	if roles&Admin != 0 {
		hint = "use the Unix socket operator.sock in DATA_DIR on the node's machine"
	}
	return isotone.Errorf(isotone.CodeUnauthorized, "clients without credentials lack the role %s here; authenticate, or %s", roles&^s.user.roles, hint)
}

// RequireAny returns nil if the session has any role, and otherwise an error that matches
// isotone.ErrUnauthorized, if credentials could help, or isotone.ErrForbidden.
func (s *Session) RequireAny() error {
	if s.MayAnything() {
		return nil
	}
	if s.user.name != "" {
		return isotone.Errorf(isotone.CodeForbidden, "user %s has no role", s.user.name)
	}
	return isotone.Errorf(isotone.CodeUnauthorized, "Authentication required.")
}

// Take is Charge and Used, for requests that this node answers by itself.
func (s *Session) Take(requests, timestamps uint64) error {
	err := s.Charge(requests, timestamps)
	if err == nil {
		s.Used(requests, timestamps)
	}
	return err
}

// Charge uses a number of requests for a number of timestamps or IDs. The error matches
// isotone.ErrQuotaExceeded and says how long to wait; then nothing was used. Call Used when they are answered: what fails,
// or is passed on to another node, counts for the quota of this node only.
func (s *Session) Charge(requests, timestamps uint64) error {
	if wait := s.spend(requests, timestamps); wait > 0 {
		return s.over(requests, "requests or timestamps a second", wait)
	}
	return nil
}

// Spend is Charge that only reports whether there is enough left: a refusal is neither logged nor counted.
func (s *Session) Spend(requests, timestamps uint64) bool { return s.spend(requests, timestamps) == 0 }

// Unspend undoes Spend for requests that are passed on to a server which calls Charge.
func (s *Session) Unspend(requests, timestamps uint64) {
	if u := s.limited(); u != nil {
		u.giveBack(requests, timestamps)
	}
}

func (s *Session) spend(requests, timestamps uint64) (wait time.Duration) {
	if u := s.limited(); u != nil {
		wait = u.take(s.control.cfg.Now(), requests, timestamps)
	}
	return wait
}

// limited returns the usage that requests count for; nil: unlimited.
func (s *Session) limited() *usage { return s.owner().limited() }

// owner returns the usage of the user, or without credentials that of the address; nil: nothing is counted.
func (s *Session) owner() *usage {
	if s.control == nil {
		return nil
	}
	s.refresh()
	if s.user.name != "" {
		return s.user.usage
	}
	return s.address
}

// over refuses a number of requests.
func (s *Session) over(requests uint64, what string, wait time.Duration) error {
	s.tally().overQuota.Add(requests)
	s.control.audit.denied("quota", s.user.name, s.addr, what)
	wait = max(wait, time.Millisecond)
	e := isotone.Errorf(isotone.CodeQuotaExceeded, "more %s than allowed; retry after %d ms", what, (wait+time.Millisecond-1)/time.Millisecond)
	e.RetryAfter = wait
	return e
}

// TakeStream counts a stream of a live document. The caller calls done when it has ended,
// unless there was an error, which matches isotone.ErrQuotaExceeded.
func (s *Session) TakeStream() (done func(), err error) { return s.TakeStreamOf(math.MaxInt64) }

// TakeStreamOf is TakeStream for streams of which the process has at most a number: without a limit of its own, nobody opens one who
// has half of that number already.
func (s *Session) TakeStreamOf(all int64) (done func(), err error) {
	u := s.owner()
	if u == nil {
		return func() {}, nil
	}
	most := u.limits.Load().Streams
	if most == 0 {
		most = s.control.shares.ofStreams(all)
	}
	if n := u.streams.Add(1); most > 0 && n > most {
		u.streams.Add(-1)
		return nil, s.over(1, "streams", time.Second)
	}
	return func() { u.streams.Add(-1) }, nil
}

// CertificateName returns whom a client's certificate is for: NAME in the URI
// spiffe://TRUST-DOMAIN/isotone/client/NAME, or else the common name; "" without either, and for
// the certificate of a node, spiffe://TRUST-DOMAIN/isotone/node/ID. A URI that says so in another
// way, with percent signs, a query or a user, names no client.
func CertificateName(cert *x509.Certificate) string {
	if cert == nil {
		return ""
	}
	for _, uri := range cert.URIs {
		if name, ok := strings.CutPrefix(uri.Path, "/isotone/client/"); uri.Scheme == "spiffe" && ok && ValidName(name) && uri.String() == "spiffe://"+uri.Host+uri.Path {
			return name
		}
		if uri.Scheme == "spiffe" && strings.HasPrefix(uri.Path, "/isotone/node/") {
			return ""
		}
	}
	if ValidName(cert.Subject.CommonName) {
		return cert.Subject.CommonName
	}
	return ""
}
