package client

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/core/search"
	"github.com/isotone/isotone/snowflake"
)

// ErrClosed is the error of calls on a closed client.
var ErrClosed = errors.New("client: closed")

const (
	// idBatchMax bounds the IDs of one request: as many as a worker of the usual layout
	// has in a millisecond.
	idBatchMax = 4096
	// IDsMax bounds the IDs of one call.
	IDsMax = 1 << 16
)

// Client requests timestamps and IDs from a cluster. It is safe for concurrent use; one for
// each process is enough. Make it with [New] or [NewWith], and end it with Close.
//
// Every call waits until it is answered or its context is done, across all failures of the
// cluster. So give calls a context with a deadline, unless they may wait indefinitely. Calls also
// wait while a quota is used up; their error then matches isotone.ErrQuotaExceeded. They fail at
// once if the nodes refuse the client: with isotone.ErrUnauthorized if they do not accept its
// credentials or its certificate, with isotone.ErrForbidden if it has no right to what it asks.
type Client struct {
	opt    Options
	epoch  time.Time
	stamps *pool
	direct *pool
	// ahead is for calls with floors so far ahead that the leader may hold them: see callAbove.
	ahead     *pool
	aheadOn   atomic.Bool
	ids       *pool
	idsOn     atomic.Bool
	timelines timelines

	ctx    context.Context // done when the client is closed
	cancel context.CancelFunc
	events chan func(*router)
	woken  chan struct{}
	work   sync.WaitGroup // all goroutines, and calls that use their own connections
	once   sync.Once
	ending sync.Mutex // guards closed, so that work does not grow after Close
	closed bool
	led    chan struct{}       // closed when the first leader is connected
	unled  chan *isotone.Error // holds one: why nodes refuse this client
	pin    atomic.Uint64       // the cluster's ID; 0 until it is known
	floor  floor

	seen    atomic.Pointer[search.View]   // the router's state, for other goroutines
	trouble trouble                       // for errors of calls
	foreign atomic.Pointer[isotone.Error] // set while only nodes of another cluster answer
}

// New returns a client of the cluster with nodes at addrs (host:port). One reachable node is
// enough. New waits until a leader is connected, the nodes refuse the client, or ctx is done.
// After New returns, ctx has no effect.
func New(ctx context.Context, addrs ...string) (*Client, error) {
	return NewWith(ctx, Options{Addrs: addrs})
}

// NewWith is [New] with options.
func NewWith(ctx context.Context, o Options) (*Client, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	c := &Client{
		opt:    o.withDefaults(),
		epoch:  time.Now(),
		events: make(chan func(*router)),
		woken:  make(chan struct{}, 1),
		led:    make(chan struct{}),
		unled:  make(chan *isotone.Error, 1),
	}
	c.pin.Store(uint64(o.Cluster))
	c.floor.Last = o.Floor
	c.ctx, c.cancel = context.WithCancel(context.Background())
	c.stamps = newPool(c, c.opt.stripes(), isotone.RangeCountMax, stampKinds[:]...)
	c.direct, c.ahead = newPool(c, 1, 0), newPool(c, 1, 0)
	c.ids = newPool(c, 1, idBatchMax, kindID)
	c.timelines.init(c)
	k := newRouter(c)
	k.publish()
	c.work.Go(k.run)
	if o.Lazy {
		return c, nil
	}
	select {
	case <-c.led:
		return c, nil
	case why := <-c.unled:
		c.Close()
		return nil, why
	case <-ctx.Done():
		err := c.timeoutError(ctx)
		c.Close()
		return nil, err
	}
}

// Close ends the client. Waiting and later calls fail with [ErrClosed]. When it returns, all
// connections are closed and all goroutines have ended.
func (c *Client) Close() error {
	c.once.Do(func() {
		c.ending.Lock()
		c.closed = true
		c.ending.Unlock()
		c.cancel()
		c.stamps.close()
		c.direct.close()
		c.ahead.close()
		c.ids.close()
		c.timelines.close()
	})
	c.work.Wait()
	return nil
}

// enter adds one to work. It reports false if the client is closed.
func (c *Client) enter() bool {
	c.ending.Lock()
	defer c.ending.Unlock()
	if c.closed {
		return false
	}
	c.work.Add(1)
	return true
}

// Snowflake returns an ID from any member.
func (c *Client) Snowflake(ctx context.Context) (snowflake.ID, error) {
	b, at, err := c.askIDs(ctx, 1)
	if err != nil {
		return 0, err
	}
	return b.ids[at], nil
}

// Snowflakes returns count IDs, 1 to [IDsMax], possibly from several members.
func (c *Client) Snowflakes(ctx context.Context, count int) ([]snowflake.ID, error) {
	if count < 1 || count > IDsMax {
		return nil, isotone.Errorf(isotone.CodeInvalidArgument, "%d IDs: want 1 to %d", count, IDsMax)
	}
	ids := make([]snowflake.ID, 0, count)
	for len(ids) < count {
		part := min(count-len(ids), idBatchMax)
		b, at, err := c.askIDs(ctx, uint64(part))
		if err != nil {
			return nil, err
		}
		ids = append(ids, b.ids[at:at+uint64(part)]...)
	}
	return ids, nil
}

func (c *Client) askIDs(ctx context.Context, count uint64) (*batch, uint64, error) {
	if !c.idsOn.Load() && c.idsOn.CompareAndSwap(false, true) {
		c.wake()
	}
	return c.ids.call(ctx, 0, count)
}

// now returns the time since the client was made.
func (c *Client) now() time.Duration { return time.Since(c.epoch) }

// post sends an event to the router.
func (c *Client) post(event func(*router)) {
	select {
	case c.events <- event:
	case <-c.ctx.Done():
	}
}

// wake has the router run a step.
func (c *Client) wake() {
	select {
	case c.woken <- struct{}{}:
	default:
	}
}

func (c *Client) notifyAnswered(cn *conn, b *batch, took time.Duration) {
	if c.opt.Hooks.Answered != nil {
		c.opt.Hooks.Answered(Answer{Addr: cn.addr, IDs: b.kind == kindID, Timeline: b.order.name(), Calls: b.calls(), Count: b.count(), Took: took})
	}
}

func (c *Client) retried(addr string, err error) {
	if c.ctx.Err() != nil {
		return
	}
	c.trouble.note(addr, err)
	if c.opt.Hooks.Retried != nil {
		c.opt.Hooks.Retried(addr, readable(err))
	}
}

// timeoutError returns the error of a call whose context is done.
func (c *Client) timeoutError(ctx context.Context) error { return c.overdue(ctx, nil) }

// overdue is timeoutError for a call that was last refused because of a quota, unless that is nil.
func (c *Client) overdue(ctx context.Context, quota *isotone.Error) error {
	err := ctx.Err()
	if err != context.DeadlineExceeded {
		if cause := context.Cause(ctx); cause != err {
			return fmt.Errorf("%w: %w", err, cause)
		}
		return err
	}
	if quota != nil {
		return &lateError{&isotone.Error{Code: quota.Code, Message: "no answer in time: " + quota.Message, RetryAfter: quota.RetryAfter}}
	}
	if why := c.foreign.Load(); why != nil {
		return &lateError{isotone.Errorf(isotone.CodeWrongCluster, "no other node answers in time: %s", why.Message)}
	}
	return &lateError{isotone.Errorf(isotone.CodeDeadlineExceeded, "no answer in time%s", c.trouble.text())}
}

// lateError matches its cause and context.DeadlineExceeded.
type lateError struct{ cause *isotone.Error }

func (e *lateError) Error() string   { return e.cause.Error() }
func (e *lateError) Unwrap() []error { return []error{e.cause, context.DeadlineExceeded} }
