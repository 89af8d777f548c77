// Package client asks an Isotone cluster for timestamps and ids.
//
//	c, err := client.New(ctx, "10.0.0.1:8080", "10.0.0.2:8080", "10.0.0.3:8080")
//	...
//	ts, err := c.Timestamp(ctx)
//
// It owns batching, the way to the leader, and what is done when nodes fail. It speaks
// the Redis protocol (docs/resp.md) over a few connections, and knows nothing of how the
// cluster agrees. docs/clients.md compares it with other ways to reach a cluster.
//
// # Batching
//
// Calls that come while a request is under way share the next one. A call never joins a
// request that was sent before it began, so what a node promises for a request holds for
// every call: its timestamp is larger than all that anyone had got when it began (I4).
// Nothing waits for a batch to fill: a lone call is sent at once, by its caller, which
// also reads the answer, on a connection of its own.
// Within a batch timestamps go to calls in the order in which they joined.
//
// # Failures
//
// A call is answered or its context is done: the client repeats a request whenever that
// may help, which is safe because timestamps that nobody has seen order nothing. It
// follows the leader by what nodes answer (MOVED). When the leader fails, refuses or is
// silent for longer than usual, it asks all members at once who leads, again and again,
// while it goes on listening.
//
// Errors are those of package isotone and of contexts:
//
//   - isotone.ErrDeadlineExceeded, which is context.DeadlineExceeded as well: no answer
//     in time. The message ends with the latest trouble.
//   - isotone.ErrWrongCluster, which is context.DeadlineExceeded too: no answer in time, and
//     all who answered are of another cluster; see below.
//   - context.Canceled.
//   - isotone.ErrOverloaded: more calls wait than Options.QueueMax.
//   - isotone.ErrInvalidArgument, isotone.ErrUnauthorized, isotone.ErrInternal: what a
//     node says, if to repeat it is of no use.
//   - [ErrClosed].
//
// # One cluster, one order
//
// A client is of one cluster for life: that of [Options].Cluster, or of the first node that
// it reaches. It asks each node on each new connection, and takes nothing from one of
// another cluster, whatever leads there: an address that was given away, a restored copy, a
// proxy before something else (I10). Of each request it also remembers what it had been
// given before it sent it: if the answer is not larger, the calls fail with
// isotone.ErrInternal (I13). Hooks.Rejected is told of both.
//
// # Ids
//
// [Client.Snowflake] asks a member for each batch of ids, in turns. A [Generator] has a
// worker leased by the cluster and makes ids by itself.
package client
