// Package client requests timestamps and IDs from an Isotone cluster.
//
//	c, err := client.New(ctx, "10.0.0.1:8080", "10.0.0.2:8080", "10.0.0.3:8080")
//	...
//	ts, err := c.Timestamp(ctx)
//
// It owns batching, leader routing and failover. It uses the Redis protocol (docs/resp.md)
// over a few connections, and does not know how the cluster agrees. docs/clients.md compares
// it with other ways to reach a cluster.
//
// # Batching
//
// Calls made while a request is under way share the next one. A call never joins a request
// that was sent before it began, so a node's guarantee for a request holds for every call:
// its timestamp is larger than all that any client had received when it began (I4). No call
// waits for a batch to fill: if no other call is under way, the caller itself sends the
// request and reads the answer, on a reserved connection. Within a batch, calls get
// timestamps in the order in which they joined.
//
// # Failures
//
// The client repeats a request until it is answered or the context is done. That is safe,
// because timestamps that nobody has received order nothing. It follows redirections to the
// leader (MOVED). When the leader fails, refuses or is silent for longer than usual, the
// client asks all members for the leader at once, and again after pauses from a millisecond on,
// once for all calls that wait, and still accepts a late answer.
//
// Errors are those of package isotone and of contexts:
//
//   - isotone.ErrDeadlineExceeded, which is context.DeadlineExceeded as well: no answer
//     in time. The message names the nodes that were tried, with the latest failure of each.
//   - isotone.ErrWrongCluster, which is context.DeadlineExceeded as well: no answer in
//     time, and all nodes that answered belong to another cluster; see below.
//   - context.Canceled.
//   - isotone.ErrOverloaded: more calls wait than Options.QueueMax.
//   - isotone.ErrRegressed: the cluster was set back, and the client may not move its time that far.
//   - isotone.ErrUnauthorized: the nodes do not accept the credentials or the certificate of
//     the client, or want some; isotone.ErrForbidden: it has no right to this. Calls fail at
//     once. The client tries new connections at growing intervals, up to about a second.
//   - isotone.ErrQuotaExceeded, which is context.DeadlineExceeded as well: the quota was used
//     up until the deadline. The client waits as long as the node asks, up to 10 s at a time.
//   - isotone.ErrInvalidArgument, isotone.ErrInternal: a node's refusal that a repetition
//     cannot change.
//   - isotone.ErrNotFound: there is no timeline of that name, or it is sealed.
//   - [ErrClosed].
//
// # TLS and credentials
//
// Options.TLS has every connection use TLS. Options.Credentials is asked for a name and a
// secret for each of them, so that a secret can be rotated. When a node forgets who the client
// is, no call fails if the credentials of the moment are right. docs/security.md has examples.
//
// # One cluster, one order
//
// A client belongs to one cluster for life: that of [Options].Cluster, or of the first node
// that it reaches. It asks for the cluster on each new connection, and uses no answer of
// another cluster, for instance after an address was reassigned or a copy was restored (I10).
// An answer must also be larger than all that the client had received when it sent the
// request; otherwise the calls fail with isotone.ErrInternal (I13). Hooks.Rejected reports
// both.
//
// The first request on each connection tells the node the largest timestamp that the client
// has received, so that a cluster that was restored from an older copy moves beyond it. Nodes
// of older versions are asked without it.
//
// # Timelines
//
// [Client.Timeline] returns a reader of a timeline: a named order beside the default one, with a floor of its own. Each
// is served by one node, its owner. The client sends requests to the node that has answered last, or that another one
// has named (MOVED), over connections that all timelines of that node share. What happens to the leader does not
// concern them.
//
// # The cluster clock
//
// A [Clock] reads the cluster's clock as an interval, and makes timestamps, both without a request. It
// needs a cluster in which intervals are on (INTERVAL_MS). Its timestamps and those of
// [Client.Timestamp] are in one order. That order is the real-time order for those that were waited
// for: see [Clock.Wait]. Unlike all else here, this rests on clocks, see [Clock].
//
// # IDs
//
// [Client.Snowflake] requests batches of IDs from the members in turn. A [Generator] leases
// a worker from the cluster and makes IDs locally.
package client
