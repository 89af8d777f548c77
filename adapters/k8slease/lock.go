package k8slease

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/leaderelection/resourcelock"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/client"
)

const (
	// IdentityMax and NameMax are the largest lengths of an identity, and of a namespace and a name with the slash between them, in bytes.
	IdentityMax, NameMax = 128, 128
	// LeaseDurationMin and LeaseDurationMax bound the elector's LeaseDuration, of which client-go tells whole seconds.
	LeaseDurationMin, LeaseDurationMax = time.Second, time.Minute

	// freshTenths: when Create or Update returns nil, the lock is sure for that many tenths of LeaseDuration.
	freshTenths = 9
	// closeTimeout bounds a release. Without an answer the cluster frees the lock after its LeaseDuration.
	closeTimeout = 3 * time.Second
)

// Lock is a [resourcelock.Interface] over a lock of an Isotone cluster. It is for one elector; Token may be called by all goroutines.
type Lock struct {
	client          *client.Client
	namespace, name string
	config          resourcelock.ResourceLockConfig

	mu   sync.Mutex
	term *term // nil: this process does not hold the lock
	// token is that of the latest term.
	token isotone.Timestamp64
	// barred: until then the lock is not acquired, as it was lost.
	barred time.Time
}

var _ resourcelock.Interface = (*Lock)(nil)

// term is a hold of the lock. It has a session of its own.
type term struct {
	session *client.Session
	mutex   *client.Mutex
	ttl     time.Duration
	// deadline is when it ends unless it is renewed, and expiry a timer that sees to that. Guarded by Lock.mu.
	deadline time.Time
	expiry   *time.Timer
}

// New returns the lock of that name, in place of [resourcelock.New]. Of rlc, Identity is required: 1 to [IdentityMax] bytes, and different for all candidates. Events go to
// EventRecorder, if there is one, as events of a Lease of that name, which need not exist. The error matches isotone.ErrInvalidArgument.
func New(c *client.Client, namespace, name string, rlc resourcelock.ResourceLockConfig) (*Lock, error) {
	switch l := len(namespace) + 1 + len(name); {
	case name == "" || l > NameMax:
		return nil, isotone.Errorf(isotone.CodeInvalidArgument, "k8slease: %q, %q: a namespace and a name have at most %d bytes, and a name has one at least", namespace, name, NameMax-1)
	case rlc.Identity == "" || len(rlc.Identity) > IdentityMax:
		return nil, isotone.Errorf(isotone.CodeInvalidArgument, "k8slease: an identity of %d bytes: want 1 to %d", len(rlc.Identity), IdentityMax)
	}
	return &Lock{client: c, namespace: namespace, name: name, config: rlc}, nil
}

// record is a LeaderElectionRecord with the token of the lock, in decimal digits.
type record struct {
	resourcelock.LeaderElectionRecord
	Token isotone.Timestamp64 `json:"token"`
}

// Get returns who holds the lock, as the cluster knows it at this moment. HolderIdentity is "" if nobody does. See the package for the other fields.
func (l *Lock) Get(ctx context.Context) (*resourcelock.LeaderElectionRecord, []byte, error) {
	h, err := l.client.Holder(ctx, l.Describe())
	if err != nil {
		return nil, nil, err
	}
	r := record{Token: h.Token}
	if h.Token != 0 {
		r.HolderIdentity, r.LeaseDurationSeconds = l.identityOf(h), 1
		r.AcquireTime, r.RenewTime = metav1.NewTime(time.Unix(0, int64(h.Token.Timestamp().Time))), metav1.Now()
	}
	raw, err := json.Marshal(r)
	return &r.LeaderElectionRecord, raw, err
}

// identityOf returns the identity of a holder. It is that of this lock only for its own term: an elector takes a record with its own identity for its own, and an earlier process may have had the same one.
func (l *Lock) identityOf(h client.Holder) string {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.term != nil && l.token == h.Token:
		return l.config.Identity
	case h.Value == "" || h.Value == l.config.Identity:
		return fmt.Sprintf("%s (token %d)", h.Value, uint64(h.Token))
	}
	return h.Value
}

// Create is Update: the cluster keeps no record of a lock that nobody holds.
func (l *Lock) Create(ctx context.Context, r resourcelock.LeaderElectionRecord) error {
	return l.Update(ctx, r)
}

// Update acquires the lock, or renews it if this process holds it; without a HolderIdentity it releases it, and ctx has no effect. When it has returned nil with one, nobody else gets the lock for nine tenths of
// LeaseDurationSeconds. The error matches isotone.ErrLocked if somebody else holds the lock, and isotone.ErrNotHeld if it was lost.
func (l *Lock) Update(ctx context.Context, r resourcelock.LeaderElectionRecord) error {
	if r.HolderIdentity == "" {
		return l.release()
	}
	if r.HolderIdentity != l.config.Identity {
		return isotone.Errorf(isotone.CodeInvalidArgument, "k8slease: a record of %q for the lock of %q", r.HolderIdentity, l.config.Identity)
	}
	l.mu.Lock()
	t := l.term
	l.mu.Unlock()
	if t == nil {
		var err error
		if t, err = l.acquire(ctx, time.Duration(r.LeaseDurationSeconds)*time.Second); err != nil {
			return err
		}
	}
	return l.renew(ctx, t)
}

// acquire begins a term if nobody holds the lock.
func (l *Lock) acquire(ctx context.Context, ttl time.Duration) (*term, error) {
	if ttl < LeaseDurationMin || ttl > LeaseDurationMax {
		return nil, isotone.Errorf(isotone.CodeInvalidArgument, "k8slease: a LeaseDuration of %v: want %v to %v", ttl, LeaseDurationMin, LeaseDurationMax)
	}
	l.mu.Lock()
	rest := time.Until(l.barred)
	l.mu.Unlock()
	if rest > 0 {
		return nil, fmt.Errorf("%w: it was lost, and is not acquired again for %v, in which its elector stops leading", isotone.ErrNotHeld, rest)
	}
	s, err := l.client.NewSession(ctx, client.SessionOptions{TTL: ttl})
	if err != nil {
		return nil, err
	}
	m := s.Mutex(l.Describe()).WithValue(l.config.Identity)
	if _, err := m.TryLock(ctx); err != nil {
		end(s)
		return nil, err
	}
	t := &term{session: s, mutex: m, ttl: ttl, deadline: time.Now().Add(ttl)}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.term, l.token = t, m.Token64()
	t.expiry = time.AfterFunc(ttl, func() { l.expire(t) })
	return t, nil
}

// renew has the cluster confirm a term.
func (l *Lock) renew(ctx context.Context, t *term) error {
	err := l.extend(t, t.session.Keep(ctx))
	if errors.Is(err, isotone.ErrNotHeld) {
		_ = t.session.Close(ctx)
	}
	return err
}

// extend makes a term last for longer, unless the cluster has not confirmed it because of err, or has taken too long.
func (l *Lock) extend(t *term, err error) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch valid := t.session.ValidFor(); {
	case l.term != t:
		return isotone.ErrNotHeld
	case t.mutex.Check() != nil:
		l.lose(t)
		return isotone.ErrNotHeld
	case err != nil:
		return err
	case valid < t.ttl/10*freshTenths:
		return isotone.Errorf(isotone.CodeDeadlineExceeded, "k8slease: the cluster has taken %v to confirm the lock", t.ttl-valid)
	}
	t.deadline = time.Now().Add(t.ttl)
	t.expiry.Reset(t.ttl)
	return nil
}

// expire ends a term that its elector has not renewed: it has ended without a release, or hangs.
func (l *Lock) expire(t *term) {
	l.mu.Lock()
	rest := time.Until(t.deadline)
	switch {
	case l.term != t:
		l.mu.Unlock()
		return
	case rest > 0: // it was renewed meanwhile
		t.expiry.Reset(rest)
		l.mu.Unlock()
		return
	}
	l.lose(t)
	l.mu.Unlock()
	end(t.session)
}

// lose ends a term that was not released. The lock is not acquired again for a LeaseDuration: an elector that acquired it anew would go on as if nobody else had led meanwhile. The caller holds mu.
func (l *Lock) lose(t *term) {
	l.term, l.barred = nil, time.Now().Add(t.ttl)
	t.expiry.Stop()
}

// release ends the term, if there is one.
func (l *Lock) release() error {
	l.mu.Lock()
	t := l.term
	l.term, l.barred = nil, time.Time{}
	l.mu.Unlock()
	if t == nil {
		return nil
	}
	t.expiry.Stop()
	ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
	defer cancel()
	err := t.mutex.Unlock(ctx)
	_ = t.session.Close(ctx)
	if errors.Is(err, isotone.ErrNotHeld) { // it was lost meanwhile
		return nil
	}
	return err
}

// end ends a session, also for callers whose context is done. Without an answer the cluster does.
func end(s *client.Session) {
	ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
	defer cancel()
	_ = s.Close(ctx)
}

// RecordEvent implements [resourcelock.Interface].
func (l *Lock) RecordEvent(what string) {
	if l.config.EventRecorder == nil {
		return
	}
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: l.namespace, Name: l.name}}
	lease.SetGroupVersionKind(coordinationv1.SchemeGroupVersion.WithKind("Lease"))
	l.config.EventRecorder.Eventf(lease, corev1.EventTypeNormal, "LeaderElection", "%v %v", l.config.Identity, what)
}

// Identity returns the identity of this process.
func (l *Lock) Identity() string { return l.config.Identity }

// Describe returns the namespace and the name, with a slash between them. It is the name of the lock in the cluster.
func (l *Lock) Describe() string { return l.namespace + "/" + l.name }

// Token returns the token of the latest term of this process, zero before the first. It is larger than that of each leader before, whichever process that was, and does not change while the elector leads.
// Stores that refuse smaller tokens than they have seen refuse what a former leader writes; package github.com/isotone/isotone/fence has such stores.
func (l *Lock) Token() isotone.Timestamp { return l.Token64().Timestamp() }

// Token64 is [Lock.Token] in 64 bits: both have one order.
func (l *Lock) Token64() isotone.Timestamp64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.token
}
