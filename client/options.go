package client

import (
	"context"
	"crypto/tls"
	"net"
	"runtime"
	"slices"
	"time"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/core/search"
)

const (
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

// Options configures a [Client]. Only Addrs is required; the zero value of every other field
// is its default.
type Options struct {
	// Addrs are client addresses of nodes, host:port. One reachable node is enough: the
	// client learns the others. Each connection resolves names again.
	Addrs []string
	// Cluster pins the cluster: the client does not use nodes of any other, nor nodes that
	// report no ID. 0 pins the cluster of the first node that reports one; then the client
	// also uses nodes that report none because their version is older. See [Client.Cluster].
	Cluster isotone.ClusterID
	// Floor is the largest timestamp that is known from before, for instance stored by an earlier
	// process: the client hands out none at or below it. The zero timestamp stands for none.
	Floor isotone.Timestamp
	// Mode applies to Timestamp and Timestamps; the default leaves it to the nodes.
	Mode isotone.ReadMode
	// Conns is the number of connections to the leader, and so of timestamp requests under
	// way at once; 0 means ConnsDefault, at most 64. There is one more connection for
	// direct calls, one for calls above floors far ahead of the clock after the first of them and, after
	// the first request for IDs, one to each member. Each node that owns timelines in use has as many
	// again; see Client.Timeline.
	Conns int
	// QueueMax bounds the calls that wait to be sent, for each read mode and for IDs, and once more
	// those whose requests are full.
	// Further calls fail with isotone.ErrOverloaded. 0 means QueueMaxDefault, at most
	// 4194304.
	QueueMax int
	// DialTimeout bounds opening a connection, and each request about the cluster; 0 means
	// DialTimeoutDefault.
	DialTimeout time.Duration
	// TLS has the client speak TLS, and never anything else; nil means no TLS. A ServerName
	// that is empty is the host of each node's address. The client does not change it; one that
	// has GetClientCertificate can renew its certificate while it runs.
	TLS *tls.Config
	// Credentials returns what the client proves its name with; nil means nothing. It is called
	// for each new connection, possibly several at once, so a secret can change while the client
	// runs; see [StaticCredentials]. It must return when ctx is done, which is after DialTimeout.
	// A secret leaves the machine within TLS only: without it, calls to other machines fail with
	// isotone.ErrUnauthorized.
	Credentials func(ctx context.Context) (Credentials, error)
	// Dial opens connections, for instance through a tunnel; nil means a net.Dialer. TLS begins
	// on what it returns. It must return when ctx is done. Calls fail at once with an error of it
	// that matches isotone.ErrUnauthorized or isotone.ErrForbidden.
	Dial func(ctx context.Context, network, addr string) (net.Conn, error)
	// Lazy makes NewWith return without waiting for a leader.
	Lazy bool
	// TraceParent returns the trace context of a call, as the value of a traceparent header (W3C
	// Trace Context, version 00), or "" for none. The spans of nodes then belong to the caller's
	// trace if it is marked as sampled. With OpenTelemetry:
	//
	//	func(ctx context.Context) string {
	//		carrier := propagation.MapCarrier{}
	//		propagation.TraceContext{}.Inject(ctx, carrier)
	//		return carrier["traceparent"]
	//	}
	//
	// Calls share requests, and a request carries the context of the first of its calls that is
	// sampled. TraceParent is called on the goroutine of each call for timestamps or IDs,
	// concurrently, so it must return quickly; nil costs nothing. Nodes of older versions are
	// asked without it.
	TraceParent func(ctx context.Context) string
	// Hooks are called on events, for metrics and traces.
	Hooks Hooks
}

// Validate returns nil, or an error that matches isotone.ErrInvalidArgument and lists
// everything that is wrong.
func (o *Options) Validate() error {
	var faults []string
	if len(o.Addrs) == 0 || len(o.Addrs) > search.MembersMax {
		faults = append(faults, "want 1 to 64 addresses")
	}
	for _, addr := range o.Addrs {
		if err := checkAddr(addr); err != nil {
			faults = append(faults, err.(*isotone.Error).Message)
		}
	}
	if o.Mode > isotone.ReadLease {
		faults = append(faults, "Mode is not a read mode")
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
	if o.TLS != nil {
		o.TLS = o.TLS.Clone()
	}
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

// stripes returns how many batches of one kind are open at once: one for each processor, but
// no more than can be under way, because otherwise some would wait for others.
func (o *Options) stripes() int { return min(o.Conns, o.QueueMax, runtime.GOMAXPROCS(0)) }

// Hooks observe a client, for metrics and traces. All are optional. They are called
// concurrently, on the client's own goroutines, so they must return quickly and must not
// call the client.
type Hooks struct {
	// Answered is called for every answered request, before its calls return.
	Answered func(Answer)
	// Retried is called when a request has to be sent again: the connection to addr
	// ended, or the node there refused, for instance because of a quota.
	Retried func(addr string, err error)
	// Rejected is called when the client discards an answer: the node belongs to another
	// cluster (err matches isotone.ErrWrongCluster; once for each connection), or it issued a
	// timestamp that is not larger than one that the client had before
	// (isotone.ErrInternal). Alert on the second: the cluster has broken its guarantees.
	Rejected func(addr string, err error)
	// Leader is called when a connection to a new leader has been made, before that answers anything.
	Leader func(addr string)
}

// Answer describes an answered request, for [Hooks].
type Answer struct {
	// Addr is the node.
	Addr string
	// IDs means that the answer has IDs, not timestamps.
	IDs bool
	// Timeline is the one that was asked; "" for the default order, and for IDs.
	Timeline string
	// Calls is the number of calls that share the answer, Count that of timestamps or IDs.
	Calls, Count uint64
	// Took is the time from sending the request to the answer, without earlier waits and
	// attempts.
	Took time.Duration
}
