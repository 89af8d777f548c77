package k8slease_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/adapters/k8slease"
	"github.com/isotone/isotone/client"
	"github.com/isotone/isotone/internal/check/await"
)

// Two configurations: one whose lease no busy machine loses, and one for tests of the loss.
var (
	longLease  = leaderelection.LeaderElectionConfig{LeaseDuration: time.Minute, RenewDeadline: 50 * time.Second, RetryPeriod: 50 * time.Millisecond, ReleaseOnCancel: true}
	shortLease = leaderelection.LeaderElectionConfig{LeaseDuration: 5 * time.Second, RenewDeadline: 4 * time.Second, RetryPeriod: 50 * time.Millisecond}
)

// observed is a lock that counts renewals, and hangs as long as somebody holds hang.
type observed struct {
	resourcelock.Interface
	renewals atomic.Int64
	hang     chan struct{} // holds one
	failed   chan error    // has what renewals have failed with
}

func (o *observed) Update(ctx context.Context, r resourcelock.LeaderElectionRecord) error {
	o.hang <- struct{}{}
	<-o.hang
	err := o.Interface.Update(ctx, r)
	if err == nil {
		o.renewals.Add(1)
		return nil
	}
	select {
	case o.failed <- err:
	default:
	}
	return err
}

// candidate is a program with an elector, as one that uses a Lease.
type candidate struct {
	*leaderelection.LeaderElector
	lock             *observed
	started, stopped chan struct{}
	stop             func()
}

// campaign begins a campaign, which ends with the test.
func campaign(t *testing.T, lock resourcelock.Interface, config leaderelection.LeaderElectionConfig) *candidate {
	t.Helper()
	c := &candidate{started: make(chan struct{}), stopped: make(chan struct{})}
	c.lock = &observed{Interface: lock, hang: make(chan struct{}, 1), failed: make(chan error, 1)}
	config.Lock = c.lock
	config.Callbacks = leaderelection.LeaderCallbacks{
		OnStartedLeading: func(context.Context) { close(c.started) },
		OnStoppedLeading: func() { close(c.stopped) },
	}
	var err error
	if c.LeaderElector, err = leaderelection.NewLeaderElector(config); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ran := make(chan struct{})
	go func() {
		c.Run(ctx)
		close(ran)
	}()
	c.stop = func() {
		cancel()
		<-ran
	}
	t.Cleanup(c.stop)
	return c
}

// newLock returns a lock, which is released at the end of the test.
func newLock(t *testing.T, c *client.Client, name, identity string) *k8slease.Lock {
	t.Helper()
	l, err := k8slease.New(c, "default", name, resourcelock.ResourceLockConfig{Identity: identity})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Update(context.Background(), resourcelock.LeaderElectionRecord{}) })
	return l
}

func TestElector_LeadsUntilItReleases(t *testing.T) {
	la, lb := newLock(t, dial(t), "release", "a"), newLock(t, dial(t), "release", "b")
	a := campaign(t, la, longLease)
	await.Receive(t, "a to lead", a.started)
	b := campaign(t, lb, longLease)
	await.Until(t, "b knows the leader", func() bool { return b.GetLeader() == "a" })
	var latest isotone.Timestamp64
	for range 2 { // one leads after the other, in both orders
		if latest >= la.Token64() || lb.Token64() >= la.Token64() {
			t.Errorf("%v leads with token %v after %v", la.Identity(), la.Token64(), latest)
		}
		latest = la.Token64()
		leader, err := nodes.Leader(soon(t))
		if err != nil {
			t.Fatal(err)
		}
		if err := leader.Kill(); err != nil {
			t.Fatal(err)
		}
		renewed := a.lock.renewals.Load()
		await.Until(t, "renewals after the cluster's leader was killed", func() bool { return a.lock.renewals.Load() > renewed+2 })
		if la.Token64() != latest {
			t.Error("a failover of the cluster is another term")
		}
		if err := errors.Join(leader.Start(), nodes.WaitReady(soon(t))); err != nil {
			t.Fatal(err)
		}
		select {
		case <-b.started:
			t.Fatal("two lead")
		default:
		}
		a.stop()
		await.Receive(t, "the end of the first leader", a.stopped)
		await.Receive(t, "the next leader", b.started)
		a, la, b, lb = b, lb, campaign(t, la, longLease), la
	}
}

func TestElector_LosesWhatItDoesNotRenew(t *testing.T) {
	for _, hangs := range []bool{false, true} {
		t.Run(fmt.Sprintf("hangs=%v", hangs), func(t *testing.T) {
			name := strings.ToLower(t.Name())
			la, lb := newLock(t, dial(t), name, "a"), newLock(t, dial(t), name, "b")
			a := campaign(t, la, shortLease)
			await.Receive(t, "a to lead", a.started)
			if hangs {
				a.lock.hang <- struct{}{}
			} else {
				a.stop() // without a release: the session of the process goes on
			}
			b := campaign(t, lb, longLease)
			await.Receive(t, "b to lead", b.started)
			if la.Token64() >= lb.Token64() {
				t.Errorf("b has token %v after %v", lb.Token64(), la.Token64())
			}
			if hangs {
				<-a.lock.hang
				if err := await.Receive(t, "a renewal that fails", a.lock.failed); !errors.Is(err, isotone.ErrNotHeld) {
					t.Error(err)
				}
			}
			await.Receive(t, "the end of a", a.stopped)
		})
	}
}

// childIdentity is the variable with the identity of a candidate that is a process.
const childIdentity, childNodes = "K8SLEASE_CANDIDATE", "K8SLEASE_NODES"

// beCandidate is a candidate for the lock "paused". It says when it leads, and when it leads no more.
func beCandidate(identity string) {
	c, err := client.New(context.Background(), strings.Split(os.Getenv(childNodes), ",")...)
	if err != nil {
		panic(err)
	}
	config := shortLease
	if config.Lock, err = k8slease.New(c, "default", "paused", resourcelock.ResourceLockConfig{Identity: identity}); err != nil {
		panic(err)
	}
	config.Callbacks = leaderelection.LeaderCallbacks{
		OnStartedLeading: func(context.Context) { fmt.Println("started") },
		OnStoppedLeading: func() { fmt.Println("stopped") },
	}
	leaderelection.RunOrDie(context.Background(), config)
}

// TestElector_NoticesThatItWasPaused: although nobody else has led meanwhile, it does not go on, as it cannot know that.
func TestElector_NoticesThatItWasPaused(t *testing.T) {
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), childIdentity+"=a", childNodes+"="+strings.Join(nodes.Addrs(), ","))
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}()
	lines := make(chan string, 2)
	go func() {
		for s := bufio.NewScanner(out); s.Scan(); {
			lines <- s.Text()
		}
		close(lines)
	}()
	if line := await.Receive(t, "the process to lead", lines); line != "started" {
		t.Fatal(line)
	}
	if err := cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	c := dial(t)
	await.Until(t, "the lock is free", func() bool {
		h, err := c.Holder(soon(t), "default/paused")
		return err == nil && h.Token == 0
	})
	if err := cmd.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	if line := await.Receive(t, "the process to stop", lines); line != "stopped" {
		t.Error(line)
	}
}

// TestElector_MovesFromALease: while candidates of both kinds run, those with both locks wait for those with one.
func TestElector_MovesFromALease(t *testing.T) {
	leases := fake.NewClientset().CoordinationV1()
	lease := func(identity string) resourcelock.Interface {
		return &resourcelock.LeaseLock{LeaseMeta: metav1.ObjectMeta{Namespace: "default", Name: "moves"}, Client: leases, LockConfig: resourcelock.ResourceLockConfig{Identity: identity}}
	}
	c := dial(t)
	old := campaign(t, lease("a"), longLease)
	await.Receive(t, "the old candidate to lead", old.started)
	lb := newLock(t, c, "moves", "b")
	both := campaign(t, &resourcelock.MultiLock{Primary: lease("b"), Secondary: lb}, longLease)
	await.Until(t, "the next candidate knows the leader", func() bool { return both.GetLeader() == "a" || both.GetLeader() == resourcelock.UnknownLeader })
	old.stop()
	await.Receive(t, "the candidate with both locks to lead", both.started)
	lc := newLock(t, c, "moves", "c")
	last := campaign(t, lc, longLease)
	await.Until(t, "the last candidate knows the leader", func() bool { return last.GetLeader() == "b" })
	both.stop()
	await.Receive(t, "the last candidate to lead", last.started)
	if lb.Token64() == 0 || lb.Token64() >= lc.Token64() {
		t.Errorf("token %v after %v", lc.Token64(), lb.Token64())
	}
}
