// Package redisstore keeps the rows of transactions in Redis. It owns the layout of the keys and the
// scripts, and knows nothing of the protocol of transactions.
//
//	client := redis.NewClient(&redis.Options{Addr: "10.0.0.1:6379", ContextTimeoutEnabled: true})
//	store, err := redisstore.Open(ctx, client, redisstore.Options{Name: "accounts"})
//	...
//	db, err := txn.New(oracle, txn.Options{Stores: map[string]txn.Store{"redis": store}})
//
// # Keys
//
// The rows of a store are divided into [Options].Parts by a hash of their keys. The Redis keys of part
// 0 of the store "accounts" are
//
//	{accounts/0}row:KEY     a hash: revision, lock, and the versions and records by timestamp
//	{accounts/0}stamps:KEY  a sorted set: the timestamps of the versions and records in KEY's row
//	{accounts/0}keys        a sorted set: the KEYs of all rows, for scans
//	{accounts/0}points      a hash: the points of the store, in part 0 only, and the fence of the part
//	{accounts/0}parts       the number of parts; part 0 only
//	{accounts/0}none        never exists; see below
//
// The braces are a hash tag of Redis Cluster: a part is in one slot. All sorted sets have the score
// 0 and are ordered by the bytes of their members. Timestamps and revisions are 8 big-endian bytes,
// since the numbers of Lua have 53 bits.
//
// # Atomicity
//
// Every access is one script, and Redis runs scripts one after another. A script touches one part,
// so a write and a read of one row are atomic, in a cluster as well. With one part, reads and scans
// include the points of the same moment. With more, the points are read after the rows, by a second
// request. A scan then asks all parts at once, and merges what they return.
//
// Each answer needs a Redis that accepts writes: scripts that have nothing to write delete the key
// that never exists. So a replica refuses to answer, and a master that has min-replicas-to-write and
// has lost its replicas does too.
//
// # At most once
//
// A client of go-redis repeats a request whose answer is lost, up to MaxRetries times, and in a
// cluster up to MaxRedirects times. A repeated write may find its own revision and report false, or
// create a row again that others have removed meanwhile. So writes are commands that go-redis never
// repeats (NoRetry), whatever the options of the client are. Redirections of a cluster are followed:
// the node that redirects has not run the script. Everything else may be repeated.
//
// # Durability
//
// The store keeps what Redis keeps. That is a matter of its configuration:
//
//   - "appendonly yes" with "appendfsync always": an answered write survives a crash of the server, and so
//     does what a read has returned: Redis syncs before it sends any answer of the same turn, and ends when
//     a sync fails. With "no-appendfsync-on-rewrite yes" it does not sync while it rewrites the file.
//     With "appendfsync everysec" about a second of answered writes is lost, and with snapshots only
//     what came after the last one. That tears transactions: some rows are back in an earlier state.
//   - Replication of Redis is asynchronous. A failover, by Sentinel or of a cluster, may lose answered
//     writes, and a master that is cut off may accept writes that are lost later. WAIT makes that less
//     likely and does not exclude it, since a replica without the write may still be elected. So this
//     package does not use WAIT. A service with the interface of Redis that replicates
//     synchronously does not have this limit. A planned failover (FAILOVER, CLUSTER FAILOVER) waits until
//     the replica has everything, and loses nothing.
//   - Eviction loses rows. Open refuses a server whose maxmemory-policy evicts keys without a time to
//     live. A full server refuses writes, and goes on to serve reads and to remove rows.
package redisstore
