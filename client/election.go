package client

import (
	"context"
	"errors"
	"iter"
	"strconv"
	"sync"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/reply"
)

// Election elects one of several processes: a [Mutex] whose holder tells others a value.
type Election struct {
	session *Session
	name    string

	mu    sync.Mutex
	mutex *Mutex
}

// Election returns the election of that name. It is the lock of that name.
func (s *Session) Election(name string) *Election {
	return &Election{session: s, name: name, mutex: s.Mutex(name)}
}

// Campaign waits until this process leads, or ctx is done. Others are told value, at most 128 bytes. The context that it returns is done when it does not lead any more; see [Mutex.Lock].
func (e *Election) Campaign(ctx context.Context, value string) (context.Context, error) {
	m := e.session.Mutex(e.name).WithValue(value)
	led, err := m.Lock(ctx)
	if err == nil {
		e.mu.Lock()
		e.mutex = m
		e.mu.Unlock()
	}
	return led, err
}

// Resign lets others lead; see [Mutex.Unlock].
func (e *Election) Resign(ctx context.Context) error { return e.held().Unlock(ctx) }

// Token returns the token of this process' latest term as the leader; see [Mutex.Token].
func (e *Election) Token() isotone.Timestamp { return e.held().Token() }

func (e *Election) held() *Mutex {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.mutex
}

// Holder says who holds a lock. The zero value stands for nobody.
type Holder struct {
	// Value is what the holder tells others; see [Mutex.WithValue] and [Election.Campaign].
	Value string
	Token isotone.Timestamp64
}

// Observe yields who leads, now and each time that changes, until ctx is done or the cluster refuses the client; a change that is soon followed by
// another one may be left out.
func (e *Election) Observe(ctx context.Context) iter.Seq2[Holder, error] {
	return e.session.client.observe(ctx, e.name)
}

// Holder returns who holds a lock. It needs no session.
func (c *Client) Holder(ctx context.Context, name string) (Holder, error) {
	v, err := c.toLeader(ctx, "LOCK", "GET", name)
	if err != nil {
		return Holder{}, err
	}
	return parseHolder(v)
}

// watchMillis is for how long a node waits until what is watched has changed.
const watchMillis = "10000"

func (c *Client) observe(ctx context.Context, name string) iter.Seq2[Holder, error] {
	return func(yield func(Holder, error) bool) {
		line := &leaderLine{client: c}
		defer line.close()
		for first, latest := true, (Holder{}); ; first = false {
			args := []string{"LOCK", "GET", name}
			if !first {
				args = []string{"LOCK", "WATCH", name, strconv.FormatUint(uint64(latest.Token), 10), "WAIT", watchMillis}
			}
			v, err := line.ask(ctx, args...)
			var next Holder
			if err == nil {
				next, err = parseHolder(v)
			}
			switch {
			case err != nil:
				yield(latest, err)
				return
			case !first && next == latest:
			case !yield(next, nil):
				return
			}
			latest = next
		}
	}
}

var errHolder = errors.New("client: an answer that describes no holder")

// parseHolder reads names and values, or null.
func parseHolder(v reply.Value) (h Holder, err error) {
	for items := v.Items; len(items) > 1; items = items[2:] {
		switch string(items[0].Text) {
		case "value":
			h.Value = string(items[1].Text)
		case "token":
			n, err := strconv.ParseUint(string(items[1].Text), 10, 64)
			if err != nil {
				return h, errHolder
			}
			h.Token = isotone.Timestamp64(n)
		}
	}
	return h, nil
}
