package client

import (
	"sync"
	"sync/atomic"

	"github.com/isotone/isotone"
)

// TimelinesMax is how many timelines one client may be asked for in its life, but for names of which there was none.
const TimelinesMax = 10_000

// Timeline returns a reader of timestamps of a timeline, in the read mode of the options: a named order beside the
// default one, which docs/concepts.md explains. An operator creates it; if there is none of that name, or it is
// sealed, calls fail with an error that matches isotone.ErrNotFound. Timestamps of two timelines have no order
// between them.
//
//	orders := c.Timeline("orders")
//	ts, err := orders.Timestamp(ctx)
//	ts, err = orders.In(isotone.ReadQuorum).Timestamp(ctx)
//
// The calls of a timeline share requests, and those of all timelines that one node owns share its connections,
// of which there are Options.Conns for each such node. They need no leader while their owner lives.
//
// Names have 1 to 64 letters, digits and . _ / -; calls of any other fail with isotone.ErrInvalidArgument. So that
// their order is always checked, a client forgets no timeline that it was asked for. It takes [TimelinesMax] of them;
// calls of further ones fail with isotone.ErrOverloaded, and need another client. Names for which the cluster has
// answered isotone.ErrNotFound, and nothing else, make room for others; then their readers fail with that error.
func (c *Client) Timeline(name string) Reader {
	r := Reader{client: c, mode: c.opt.Mode}
	r.order, r.fault = c.timelines.order(name)
	return r
}

const timelineNameMax = 64

// checkTimeline returns an error unless name may be that of a timeline.
func checkTimeline(name string) *isotone.Error {
	if name == "" || len(name) > timelineNameMax {
		return isotone.Errorf(isotone.CodeInvalidArgument, "timeline: a name of %d bytes: want 1 to %d", len(name), timelineNameMax)
	}
	for i := range len(name) {
		switch c := name[i]; {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9', c == '.', c == '_', c == '/', c == '-':
		default:
			return isotone.Errorf(isotone.CodeInvalidArgument, "timeline: %q: a name has letters, digits, and . _ / - only", name)
		}
	}
	return nil
}

// timelines are those that a client was asked for, and the pools of the nodes that serve them: one for each node,
// whatever the number of its timelines.
//
// The requests of a timeline go to its owner: the node that has answered last, or that another one has named. While
// there is no connection to that, they look for the owner themselves: they go to one reachable node after the other,
// with growing pauses. Each of these answers, names the owner, or does not know it. So a search costs some requests for
// each timeline that is used, and nothing for others, and none of it depends on the leader.
type timelines struct {
	client *Client

	// mu is the lock of all orders and pools here.
	mu     sync.Mutex
	orders map[string]*order
	nodes  map[string]*pool // by address
	lost   []*order         // they wait until any node is reached
	none   []*order         // of names of which there was none, and may still be none: they make room for others
	// seeks: a timeline is looked for, so that the router connects to all members.
	seeks  bool
	why    *isotone.Error // all nodes refuse this client
	closed bool

	patience atomic.Int64 // lineSilentMin, but in tests
}

// timeline is what the order of one has besides. timelines.mu guards it.
type timeline struct {
	name  string
	owner *pool // of its node; nil while it is unknown
	place place
	at    *pool // with placeQueued
	// failures counts refusals and redirects since the last answer, moves the redirects in a row, and turn the nodes that
	// were tried while there was no connection to the owner.
	failures, moves, turn int
	// paused is the number of the pause that lasts, or of the latest.
	paused uint64
	// none: it is in timelines.none. gone: it has made room for another.
	none, gone bool
}

// place is where the batches of a timeline wait.
type place uint8

const (
	placeNone   place = iota // there may be none
	placeQueued              // for a connection of a node
	placeLost                // for a connection of any
	placePaused              // until a pause is over
)

// lineNode is what the pool of a node has besides. timelines.mu guards it, but for the fields of the router.
type lineNode struct {
	addr    string
	conns   int      // open connections
	owns    int      // timelines whose owner it is
	wanted  bool     // a timeline of it is waiting for a connection
	waiting []*order // with placeQueued, in turn

	dialing dialing // of the router
	sent    uint64  // of the router: see watch
}

func (t *timelines) init(c *Client) {
	t.client, t.orders, t.nodes = c, map[string]*order{}, map[string]*pool{}
	t.patience.Store(int64(lineSilentMin))
}

// order returns that of a timeline.
func (t *timelines) order(name string) (*order, *isotone.Error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if o := t.orders[name]; o != nil {
		return o, nil
	}
	if err := checkTimeline(name); err != nil {
		return nil, err
	}
	if len(t.orders) >= TimelinesMax && !t.makeRoom() {
		return nil, isotone.Errorf(isotone.CodeOverloaded, "timeline %q: this client was asked for %d others, which is the most; use another client", name, TimelinesMax)
	}
	o := &order{timeline: &timeline{name: name}, floor: &floor{}}
	o.init(t.client, &t.mu, 1, isotone.RangeCountMax, stampKinds[:]...)
	o.refused.Store(t.why)
	t.orders[name] = o
	if t.closed {
		for i := range o.queues {
			o.queues[i].end(ErrClosed)
		}
		o.closed = true
	}
	return o, nil
}

// missed: the cluster has no timeline of that name. It takes mu.
func (t *timelines) missed(o *order) {
	t.mu.Lock()
	defer t.mu.Unlock()
	line := o.timeline
	if o.floor.now() == (isotone.Timestamp{}) && !line.none && !line.gone {
		line.none = true
		t.none = append(t.none, o)
	}
}

// makeRoom forgets a name of which there was no timeline, and reports whether there was one. The caller holds mu.
func (t *timelines) makeRoom() bool {
	for len(t.none) > 0 {
		o := t.none[0]
		t.none[0], t.none = nil, t.none[1:]
		line := o.timeline
		if line.none = false; line.place != placeNone || !o.isIdle() {
			continue
		}
		delete(t.orders, line.name)
		t.setOwner(line, nil)
		line.gone, o.closed = true, true
		for i := range o.queues {
			o.queues[i].end(o.ending()).finish(o.ending())
		}
		return true
	}
	return false
}

// node returns the pool of a node. The caller holds mu.
func (t *timelines) node(addr string) *pool {
	p := t.nodes[addr]
	if p == nil {
		p = &pool{node: &lineNode{addr: addr}}
		p.order.init(t.client, &t.mu, 1, 0)
		p.closed = t.closed
		t.nodes[addr] = p
	}
	return p
}

// next returns the next batch of the timelines that wait for a connection of the node. The caller holds mu.
func (n *lineNode) next() *batch {
	for len(n.waiting) > 0 {
		o := n.waiting[0]
		n.waiting[0], n.waiting = nil, n.waiting[1:]
		if b := o.next(); b != nil {
			n.waiting = append(n.waiting, o) // more may wait
			return b
		}
		o.timeline.place, o.timeline.at = placeNone, nil
	}
	return nil
}

// enlist has a timeline wait for a connection, since calls of it wait. It returns the pool of the node, or nil if there is none now.
func (t *timelines) enlist(o *order) *pool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.queue(o)
}

// queue is enlist for a caller that holds mu.
func (t *timelines) queue(o *order) *pool {
	line := o.timeline
	if line.place != placeNone || line.gone {
		return line.at
	}
	p := t.pick(line)
	if p == nil {
		line.place = placeLost
		t.lost = append(t.lost, o)
		return nil
	}
	line.place, line.at = placeQueued, p
	p.node.waiting = append(p.node.waiting, o)
	return p
}

// close ends all timelines.
func (t *timelines) close() {
	t.mu.Lock()
	t.closed = true
	var orders []*order
	for _, o := range t.orders {
		orders = append(orders, o)
	}
	var pools []*pool
	for _, p := range t.nodes {
		pools = append(pools, p)
	}
	t.mu.Unlock()
	for _, p := range pools {
		p.close()
	}
	for _, o := range orders {
		o.end()
	}
}
