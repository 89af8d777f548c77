package storm

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"sync"
	"time"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/client"
	"github.com/isotone/isotone/fence"
)

// What a worker reports, a line each. Failures have their text after it; accepted and fenced writes have what they were of, and the store: "fenced lock redis".
const (
	granted  = "granted"
	begun    = "begun"
	sealed   = "sealed"
	accepted = "accepted"
	fenced   = "fenced"
	failed   = "failed"
)

const (
	// lockTTLMin and lockTTLMax bound the TTL of a session for locks, and groupTTL is that of one for a group.
	lockTTLMin, lockTTLMax = 500 * time.Millisecond, time.Second
	groupTTL               = 500 * time.Millisecond
	// writesMax bounds the writes under a grant, and workMax the time before each write.
	writesMax = 6
	workMax   = 40 * time.Millisecond
	// groupWriters is how many goroutines of a worker write in a group.
	groupWriters = 2
	// retryPause is the pause after a failure.
	retryPause = 20 * time.Millisecond
)

// Worker is what a worker is to do.
type Worker struct {
	// Name is the value of the locks that it holds.
	Name    string
	Nodes   []string
	Servers Servers
	Locks   []string
	Groups  []string
}

// Work is the program of a worker: it writes under locks and in groups, and reports on out, until it is killed. It returns an error if it cannot begin.
func Work(ctx context.Context, o Worker, out io.Writer) error {
	stores, closing, err := o.Servers.open()
	if err != nil {
		return err
	}
	defer closing()
	c, err := client.New(ctx, o.Nodes...)
	if err != nil {
		return err
	}
	defer c.Close()
	w := &worker{Worker: o, client: c, stores: stores, out: out}
	var work sync.WaitGroup
	work.Go(func() { w.repeat(ctx, w.lock) })
	for _, group := range o.Groups {
		work.Go(func() { w.repeat(ctx, func(ctx context.Context) error { return w.group(ctx, group) }) })
	}
	work.Wait()
	return nil
}

type worker struct {
	Worker
	client *client.Client
	stores []store

	mu  sync.Mutex
	out io.Writer
}

func (w *worker) say(words ...string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	_, _ = fmt.Fprintln(w.out, strings.ReplaceAll(strings.Join(words, " "), "\n", "; "))
}

// repeat does something again and again; what fails is a session that has ended, as a rule.
func (w *worker) repeat(ctx context.Context, do func(context.Context) error) {
	for ctx.Err() == nil {
		if err := do(ctx); err != nil {
			w.say(failed, err.Error())
			time.Sleep(retryPause)
		}
	}
}

// lock takes locks, and writes under them, until its session ends.
func (w *worker) lock(ctx context.Context) error {
	ttl := lockTTLMin + rand.N(lockTTLMax-lockTTLMin)
	s, err := w.client.NewSession(ctx, client.SessionOptions{TTL: ttl.Truncate(time.Millisecond), Label: w.Name})
	if err != nil {
		return err
	}
	defer func() { _ = s.Close(ctx) }()
	for {
		lock := w.Locks[rand.IntN(len(w.Locks))]
		m := s.Mutex(lock).WithValue(w.Name)
		if _, err := m.Lock(ctx); err != nil {
			return err
		}
		token := m.Token()
		w.say(granted)
		for range 1 + rand.IntN(writesMax) {
			for _, store := range w.stores {
				w.write(ctx, "lock "+store.name(), func(ctx context.Context) error { return store.writeLock(ctx, lock, token) })
			}
		}
		if err := m.Unlock(ctx); err != nil && !errors.Is(err, isotone.ErrNotHeld) {
			return err
		}
	}
}

// group writes in a group until its session ends.
func (w *worker) group(ctx context.Context, group string) error {
	seal := sealer{stores: w.stores, group: group, sealed: func() { w.say(sealed) }}
	if w.Servers.Unfenced {
		seal.stores = nil
	}
	writer, err := w.client.NewFrontier(ctx, group, client.FrontierOptions{Fence: seal, TTL: groupTTL, Label: w.Name})
	if err != nil {
		return err
	}
	var work sync.WaitGroup
	for range groupWriters {
		work.Go(func() {
			for {
				o, err := writer.Begin(ctx)
				if err != nil {
					return
				}
				w.say(begun)
				w.writeStamped(ctx, group, o)
			}
		})
	}
	work.Wait()
	return writer.Err()
}

// writeStamped writes to both stores with one stamp.
func (w *worker) writeStamped(ctx context.Context, group string, o *client.FrontierWrite) {
	decided := true
	for _, store := range w.stores {
		err := w.write(ctx, "group "+store.name(), func(ctx context.Context) error { return store.writeGroup(ctx, group, o.Stamp()) })
		decided = decided && (err == nil || errors.Is(err, fence.ErrFenced))
	}
	if decided {
		o.Done()
	} else {
		o.Unknown()
	}
}

// write writes after a while, in which a holder may lose its lock and a writer its session, and reports what the store has said.
func (w *worker) write(ctx context.Context, of string, do func(context.Context) error) error {
	time.Sleep(rand.N(workMax))
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	err := do(ctx)
	switch {
	case err == nil:
		w.say(accepted, of)
	case errors.Is(err, fence.ErrFenced):
		w.say(fenced, of)
	default:
		w.say(failed, of+": "+err.Error())
	}
	return err
}
