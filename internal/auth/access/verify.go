package access

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"net/netip"
	"strings"
	"sync"
	"time"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/auth/address"
)

const (
	// knownMax and knownTime bound what is remembered of credentials that were right.
	knownMax  = 4096
	knownTime = time.Hour
	// failuresMax bounds the wrong credentials of one address in a minute. More are refused
	// without a look, so that guesses neither succeed nor take the node's time.
	failuresMax = 20
	failureTime = time.Minute
	// failingMax bounds the addresses that are remembered for it.
	failingMax = 65536
)

// Credentials are a user's name and secret as a client sent them.
type Credentials struct{ Name, Secret string }

// valid reports whether c can be right at all.
func (c Credentials) valid() bool {
	return ValidName(c.Name) && c.Secret != "" && len(c.Secret) <= SecretMax
}

// authorizationMax bounds the value of Authorization that is looked at, in bytes. The longest name
// and secret have 434 in base64, with the word Basic.
const authorizationMax = 512

// ParseAuthorization reads the value of the field Authorization: "Bearer NAME~SECRET" (RFC 6750)
// or "Basic " and the base64 of "NAME:SECRET" (RFC 7617).
func ParseAuthorization(value string) (Credentials, bool) {
	if len(value) > authorizationMax {
		return Credentials{}, false
	}
	scheme, rest, _ := strings.Cut(value, " ")
	rest = strings.Trim(rest, " ")
	separator := "~"
	switch {
	case strings.EqualFold(scheme, "basic"):
		text, err := base64.StdEncoding.DecodeString(rest)
		if err != nil {
			return Credentials{}, false
		}
		rest, separator = string(text), ":"
	case !strings.EqualFold(scheme, "bearer"):
		return Credentials{}, false
	}
	name, secret, ok := strings.Cut(rest, separator)
	if c := (Credentials{name, secret}); ok && c.valid() {
		return c, true
	}
	return Credentials{}, false
}

// verifier checks credentials. Hashing is slow, and one goroutine does it for all: a flood of
// wrong secrets takes at most one core. What was right once is remembered, by a keyed hash of the
// credentials with a key that never leaves the process, so that the next connection of the same
// client costs a microsecond.
type verifier struct {
	control *Control
	key     [32]byte

	mu      sync.Mutex
	known   map[[sha256.Size]byte]verified
	failed  map[netip.Addr]*failures
	queue   []*attempt
	dropped []*attempt // left the queue unchecked, for others; run answers them
	running bool

	restUntil time.Time // of run
}

// verified says when credentials were right, by which list, and which hash in it they have.
type verified struct {
	at  time.Duration
	by  *edition
	sum string
}

// failures are the wrong credentials of one address.
type failures struct {
	since time.Duration
	count int
	// last is the digest of the latest. A client that repeats it guesses nothing, and gets its refusal without
	// being counted: a client with the wrong secret does not keep others of its address out.
	last [sha256.Size]byte
	by   *edition // by which last is wrong
}

func newVerifier(c *Control) *verifier {
	v := &verifier{control: c, known: map[[sha256.Size]byte]verified{}, failed: map[netip.Addr]*failures{}}
	_, _ = rand.Read(v.key[:]) // never fails
	return v
}

func (v *verifier) digest(c Credentials) (sum [sha256.Size]byte) {
	mac := hmac.New(sha256.New, v.key[:])
	mac.Write([]byte(c.Name))
	mac.Write([]byte{0})
	mac.Write([]byte(c.Secret))
	mac.Sum(sum[:0])
	return sum
}

// forget drops what is known by a list that has changed. It does not count any more by then.
func (v *verifier) forget() {
	v.mu.Lock()
	defer v.mu.Unlock()
	clear(v.known)
	for _, f := range v.failed {
		f.by = nil
	}
}

// lookUp returns the hash of c in the list in force if c was right a while ago.
func (v *verifier) lookUp(c Credentials) (sum string, known bool) {
	digest := v.digest(c)
	v.mu.Lock()
	defer v.mu.Unlock()
	k, ok := v.known[digest]
	return k.sum, ok && k.by == v.control.table.Load().edition && v.control.cfg.Now()-k.at < knownTime
}

func (v *verifier) isKnown(c Credentials) bool {
	_, known := v.lookUp(c)
	return known
}

var (
	errWrong       = isotone.Errorf(isotone.CodeUnauthorized, "the name or the secret is wrong")
	errTooManyBad  = &isotone.Error{Code: isotone.CodeUnauthorized, Message: "too many wrong credentials came from this address; try again in a minute", RetryAfter: failureTime}
	errPlaintext   = isotone.Errorf(isotone.CodeUnauthorized, "credentials are accepted within TLS only, except from this machine: everybody on the way could read them, so change this secret")
	errChanged     = &isotone.Error{Code: isotone.CodeOverloaded, Message: "the list of users changed while the credentials were checked; try again", RetryAfter: time.Second}
	errVerifyQueue = &isotone.Error{Code: isotone.CodeOverloaded, Message: "too many credentials wait to be checked", RetryAfter: time.Second}
)

// submit checks c. It calls done, on a goroutine of its own, unless it returns true: then done
// is not called, and err is the result.
func (v *verifier) submit(c Credentials, addr netip.Addr, done func(error)) (now bool, err error) {
	addr = address.Network(addr)
	if !c.valid() {
		return true, v.wrong(c, addr, v.control.table.Load().edition)
	}
	if v.isKnown(c) {
		return true, nil
	}
	sum := v.digest(c)
	v.mu.Lock()
	defer v.mu.Unlock()
	if f := v.failed[addr]; v.failures(addr) > 0 && f.last == sum && f.by == v.control.table.Load().edition {
		return true, errWrong
	}
	return v.enqueue(&attempt{digest: sum, credentials: c, addr: addr, done: []func(error){done}})
}

// nobody is whose secret is compared for names that do not exist, so that they take as long.
var nobody = sync.OnceValue(func() hash {
	h, _ := parseHash(HashSecret(NewSecret()))
	return h
})

func (v *verifier) check(a *attempt) error {
	if v.isKnown(a.credentials) {
		return nil // since it waits
	}
	t := v.control.table.Load()
	secrets, exists := []hash{nobody()}, false
	if u := t.users[a.credentials.Name]; u != nil && len(u.secrets) > 0 {
		secrets, exists = u.secrets, true
	}
	sum := ""
	for i := range secrets {
		if secrets[i].matches(a.credentials.Secret) {
			sum = string(secrets[i].sum)
		}
	}
	if sum == "" || !exists {
		return v.wrong(a.credentials, a.addr, t.edition)
	}
	v.remember(a.credentials, t.edition, sum)
	return nil
}

// remember notes that c is right by an edition of the list, where it has the hash sum.
func (v *verifier) remember(c Credentials, by *edition, sum string) {
	digest := v.digest(c)
	v.mu.Lock()
	defer v.mu.Unlock()
	if len(v.known) >= knownMax {
		clear(v.known) // all have to be checked again
	}
	v.known[digest] = verified{v.control.cfg.Now(), by, sum}
}

// wrong notes that credentials of an address are wrong by an edition of the list.
func (v *verifier) wrong(c Credentials, addr netip.Addr, by *edition) error {
	name := c.Name
	if !ValidName(name) {
		name = "" // perhaps a secret in the wrong place
	}
	v.control.audit.denied("credentials", name, addr, "authentication")
	sum := v.digest(c)
	v.mu.Lock()
	defer v.mu.Unlock()
	now := v.control.cfg.Now()
	f := v.failed[addr]
	if f == nil || now-f.since >= failureTime {
		if len(v.failed) >= failingMax {
			clear(v.failed)
		}
		f = &failures{since: now}
		v.failed[addr] = f
	}
	f.count++
	f.last, f.by = sum, by
	return errWrong
}

// Authenticate makes the session speak for the user of c, if that is right. It returns true if
// the result is known at once, in err. Otherwise it calls done with the result, on another
// goroutine; the caller then calls [Session.Become] on its own. An err, in either
// case, matches isotone.ErrUnauthorized, isotone.ErrOverloaded or isotone.ErrQuotaExceeded, and
// changes nothing. A session without a Control has no users.
func (s *Session) Authenticate(c Credentials, done func(error)) (now bool, err error) {
	switch {
	case s.control == nil:
		return true, errWrong
	case !s.private:
		s.control.audit.denied("plaintext", "", s.addr, "credentials")
		return true, errPlaintext
	}
	if now, err = s.control.verify.submit(c, s.addr, done); now && err == nil {
		err = s.Become(c)
	}
	return now, err
}

// Prove is Authenticate that waits for the result, or for ctx to end.
func (s *Session) Prove(ctx context.Context, c Credentials) error {
	result := make(chan error, 1)
	now, err := s.Authenticate(c, func(err error) { result <- err })
	if now {
		return err
	}
	select {
	case err = <-result:
	case <-ctx.Done():
		return isotone.Errorf(isotone.CodeDeadlineExceeded, "the credentials were not checked in time")
	}
	if err != nil {
		return err
	}
	return s.Become(c)
}

// Become makes the session speak for a user whose credentials were right just now, until that secret is
// taken from the list. The error matches isotone.ErrQuotaExceeded if the user has too many connections,
// and isotone.ErrOverloaded if the list has changed since.
func (s *Session) Become(c Credentials) error {
	if s.control == nil {
		return nil
	}
	sum, known := s.control.verify.lookUp(c)
	if !known {
		return errChanged
	}
	if s.name == c.Name && s.proof == sum {
		return nil
	}
	if u := s.control.table.Load().users[c.Name]; u != nil && u.usage != nil && u.usage != s.counted {
		if (!s.closed || u.limits.Connections > 0) && !s.control.shares.hasRoom(u.usage, s.pool) {
			return s.over(1, "connections of this user", time.Second)
		}
	}
	s.name, s.proof = c.Name, sum
	s.resolve()
	return nil
}

// Recall is Authenticate for credentials that were right a while ago: it reports at once whether they were
// and the session speaks for their user now. If not, nothing has changed.
func (s *Session) Recall(c Credentials) bool {
	return s.control != nil && s.private && s.control.Known(c) && s.Become(c) == nil
}

// Reset makes the session speak for nobody again.
func (s *Session) Reset() {
	if s.control != nil && s.name != "" {
		s.name, s.proof = "", ""
		s.resolve()
	}
}

// Known reports at once whether c was right a while ago.
func (c *Control) Known(cr Credentials) bool { return cr.valid() && c.verify.isKnown(cr) }
