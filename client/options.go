package client

import (
	"context"
	"net"
	"runtime"
	"slices"
	"time"

	"github.com/isotone/isotone"
)

const (
	// membersMax bounds the addresses that are given, and those that are learned.
	membersMax = 64
	// connsMax bounds the connections to the leader.
	connsMax = 64
	// queueMax bounds Options.QueueMax.
	queueMax = 1 << 22
)

// Defaults of [Options].
const (
	ConnsDefault       = 2
	QueueMaxDefault    = 1 << 16
	DialTimeoutDefault = time.Second
)

// Options are how a [Client] is set up. Only Addrs is required; the zero value of every
// other field is its default.
type Options struct {
	// Addrs are client addresses of nodes, host:port. One that is reached is enough: the
	// others are learned. Names are looked up anew with every connection.
	Addrs []string
	// Cluster pins the cluster: nodes of any other, and those that tell no ID, are not
	// used. 0 pins that of the first node that is reached and tells one; then nodes that tell none, because
	// they are of an older version, are used as well. See [Client.Cluster].
	Cluster isotone.ClusterID
	// Mode applies to Timestamp and Timestamps; the default leaves it to the nodes.
	Mode isotone.ReadMode
	// Conns is how many connections to the leader there are, and so how many requests
	// for timestamps are under way at once; 0 means ConnsDefault, at most 64. There is
	// one more for lone calls, and one to each member for ids, if ids are asked for.
	Conns int
	// QueueMax is how many calls may wait to be sent, for each read mode, and for ids.
	// Beyond it calls fail with isotone.ErrOverloaded. 0 means QueueMaxDefault, at most
	// 4194304.
	QueueMax int
	// DialTimeout bounds the making of a connection, and any question about the
	// cluster; 0 means DialTimeoutDefault.
	DialTimeout time.Duration
	// Dial makes connections, through TLS or a tunnel for instance; nil means a
	// net.Dialer. It must return when ctx is done.
	Dial func(ctx context.Context, network, addr string) (net.Conn, error)
	// Lazy: NewWith does not wait for a leader.
	Lazy bool
	// Hooks are called as things happen.
	Hooks Hooks
}

// Validate returns an error that matches isotone.ErrInvalidArgument and names every
// fault, or nil.
func (o *Options) Validate() error {
	var faults []string
	if len(o.Addrs) == 0 || len(o.Addrs) > membersMax {
		faults = append(faults, "want 1 to 64 addresses")
	}
	for _, addr := range o.Addrs {
		if err := checkAddr(addr); err != nil {
			faults = append(faults, err.(*isotone.Error).Message)
		}
	}
	if o.Mode > isotone.ReadLease {
		faults = append(faults, "Mode is no read mode")
	}
	if o.Conns < 0 || o.Conns > connsMax {
		faults = append(faults, "Conns: want 0 to 64")
	}
	if o.QueueMax < 0 || o.QueueMax > queueMax {
		faults = append(faults, "QueueMax: want 0 to 4194304")
	}
	if o.DialTimeout < 0 {
		faults = append(faults, "DialTimeout is negative")
	}
	if len(faults) == 0 {
		return nil
	}
	message := faults[0]
	for _, fault := range faults[1:] {
		message += "; " + fault
	}
	return isotone.Errorf(isotone.CodeInvalidArgument, "client options: %s", message)
}

func (o Options) withDefaults() Options {
	o.Addrs = slices.Clone(o.Addrs)
	if o.Conns == 0 {
		o.Conns = ConnsDefault
	}
	if o.QueueMax == 0 {
		o.QueueMax = QueueMaxDefault
	}
	if o.DialTimeout == 0 {
		o.DialTimeout = DialTimeoutDefault
	}
	if o.Dial == nil {
		o.Dial = new(net.Dialer).DialContext
	}
	return o
}

// stripes is how many batches of timestamps of one kind gather at once: one for each
// processor, but no more than can be under way, else some would have to wait for others.
func (o *Options) stripes() int { return min(o.Conns, o.QueueMax, runtime.GOMAXPROCS(0)) }

// Hooks watch a client, for metrics and traces. All are optional. They are called on the
// goroutines that do the work, some of them at the same time, so they must return soon
// and must not call the client.
type Hooks struct {
	// Answered is called for every request that was answered, before its callers get it.
	Answered func(Answer)
	// Retried is called when a request has to be sent again: the connection to addr
	// ended, or the node there refused.
	Retried func(addr string, err error)
	// Rejected is called when what a node gives is not used: the node is of another cluster
	// (err matches isotone.ErrWrongCluster; once for each connection), or it gave a timestamp
	// that is not larger than one that the client had before (isotone.ErrInternal). The
	// second is for somebody to look at: the promises of the cluster are broken.
	Rejected func(addr string, err error)
	// Leader is called when a connection to another leader has been made.
	Leader func(addr string)
}

// Answer tells [Hooks] of a request that was answered.
type Answer struct {
	// Addr is the node.
	Addr string
	// IDs: it gave ids, not timestamps.
	IDs bool
	// Calls is how many calls share the answer; Count is how many timestamps or ids it
	// has.
	Calls, Count uint64
	// Took is the time from sending it to the answer. Waits before that, also for
	// earlier attempts, are not in it.
	Took time.Duration
}
