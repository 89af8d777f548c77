// Package resourcelock stands for client-go's package of that name in client-go's own tests of its elector: what the tests take for the lock of a Lease is a lock of a cluster of Isotone.
package resourcelock

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	coordinationv1client "k8s.io/client-go/kubernetes/typed/coordination/v1"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/leaderelection/resourcelock"

	"github.com/isotone/isotone/adapters/k8slease"
	"github.com/isotone/isotone/client"
)

// What the tests use of client-go's package besides.
type (
	Interface            = resourcelock.Interface
	LeaderElectionRecord = resourcelock.LeaderElectionRecord
	ResourceLockConfig   = resourcelock.ResourceLockConfig
)

// LeaderElectionRecordAnnotationKey is client-go's.
const LeaderElectionRecordAnnotationKey = resourcelock.LeaderElectionRecordAnnotationKey

// These are client-go's.
var (
	LeaseSpecToLeaderElectionRecord = resourcelock.LeaseSpecToLeaderElectionRecord
	LeaderElectionRecordToLeaseSpec = resourcelock.LeaderElectionRecordToLeaseSpec
)

// New returns a LeaseLock.
func New(_, namespace, name string, _ corev1client.CoreV1Interface, c coordinationv1client.CoordinationV1Interface, config ResourceLockConfig) (Interface, error) {
	return &LeaseLock{LeaseMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Client: c, LockConfig: config}, nil
}

// LeaseLock takes the place of client-go's type of that name in client-go's own tests. The lock is one of a cluster of Isotone. Client, a fake API server that follows the script of a
// test, is asked as well: it counts the calls, has them fail, and says who holds the lock before a test begins.
type LeaseLock struct {
	LeaseMeta  metav1.ObjectMeta
	Client     coordinationv1client.LeasesGetter
	LockConfig ResourceLockConfig

	name        string
	lock, rival Interface
	known       bool // Get or Create has succeeded
}

// Cluster is a client of the cluster.
var Cluster *client.Client

// locks counts the locks. Each has a name of its own, which no earlier process has used: its locks may not be free yet.
var locks atomic.Int64

// scriptSeconds is the LeaseDuration of holders for whom a script names none.
const scriptSeconds = 30

func (ll *LeaseLock) own() Interface {
	if ll.lock == nil {
		ll.name = fmt.Sprintf("%s-%d-%d", ll.LeaseMeta.Name, os.Getpid(), locks.Add(1))
		ll.lock = ll.candidate(ll.LockConfig)
	}
	return ll.lock
}

func (ll *LeaseLock) candidate(c ResourceLockConfig) Interface {
	l, err := k8slease.New(Cluster, ll.LeaseMeta.Namespace, ll.name, c)
	if err != nil {
		panic(err)
	}
	return l
}

func (ll *LeaseLock) script() coordinationv1client.LeaseInterface {
	return ll.Client.Leases(ll.LeaseMeta.Namespace)
}

// Get asks the cluster, once the lock is held by whom the script names.
func (ll *LeaseLock) Get(ctx context.Context) (*LeaderElectionRecord, []byte, error) {
	lease, err := ll.script().Get(ctx, ll.LeaseMeta.Name, metav1.GetOptions{})
	if err != nil {
		return nil, nil, err
	}
	if err := ll.prepare(ctx, LeaseSpecToLeaderElectionRecord(&lease.Spec)); err != nil {
		return nil, nil, err
	}
	ll.known = true
	return ll.own().Get(ctx)
}

// prepare has the holder that the script names acquire the lock. If the script names another one again, that one has not renewed it, and its time is waited for.
func (ll *LeaseLock) prepare(ctx context.Context, r *LeaderElectionRecord) error {
	own := ll.own()
	if r.LeaseDurationSeconds == 0 {
		r.LeaseDurationSeconds = scriptSeconds
	}
	switch {
	case r.HolderIdentity == "":
		return nil
	case r.HolderIdentity == ll.LockConfig.Identity:
		return own.Update(ctx, *r)
	case ll.rival == nil:
		ll.rival = ll.candidate(ResourceLockConfig{Identity: r.HolderIdentity})
		return ll.rival.Create(ctx, *r)
	}
	for end := time.Now().Add(2 * scriptSeconds * time.Second); time.Now().Before(end); time.Sleep(time.Millisecond) {
		if h, _, err := own.Get(ctx); err != nil || h.HolderIdentity == "" {
			return err
		}
	}
	return errors.New("the lock of a holder that does not renew it is not free in time")
}

// Create asks the cluster and then the script: if that fails, the answer was lost.
func (ll *LeaseLock) Create(ctx context.Context, r LeaderElectionRecord) error {
	if err := ll.own().Create(ctx, r); err != nil {
		return err
	}
	_, err := ll.script().Create(ctx, &coordinationv1.Lease{ObjectMeta: ll.LeaseMeta, Spec: LeaderElectionRecordToLeaseSpec(&r)}, metav1.CreateOptions{})
	ll.known = ll.known || err == nil
	return err
}

// Update asks the cluster and then the script, as Create does.
func (ll *LeaseLock) Update(ctx context.Context, r LeaderElectionRecord) error {
	if !ll.known { // as of client-go's type, on which the tests rely
		return errors.New("neither Get nor Create was called")
	}
	if err := ll.own().Update(ctx, r); err != nil {
		return err
	}
	_, err := ll.script().Update(ctx, &coordinationv1.Lease{ObjectMeta: ll.LeaseMeta, Spec: LeaderElectionRecordToLeaseSpec(&r)}, metav1.UpdateOptions{})
	return err
}

// RecordEvent is the cluster's lock's.
func (ll *LeaseLock) RecordEvent(what string) { ll.own().RecordEvent(what) }

// Identity is that of the configuration.
func (ll *LeaseLock) Identity() string { return ll.LockConfig.Identity }

// Describe is the cluster's lock's.
func (ll *LeaseLock) Describe() string { return ll.own().Describe() }
