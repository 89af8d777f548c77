// Package fence has a store refuse writes that come too late.
//
// A fence is one number that a store keeps beside its data, durably: a write carries a stamp, and the store accepts it only if the
// stamp is at or above the fence. It compares, raises the fence and writes in one atomic step, and never lowers the fence. Without that, a process
// that was paused while it held a lock, or a packet that was late, overwrites what the next holder has written
// (Kleppmann, "How to do distributed locking", 2016).
//
// There are two kinds of use, and a name of a fence is of one of them:
//
//   - Locks. The stamp is the token of a grant. Raise accepts a write under it and raises the fence to it, so that no write under an earlier token
//     is accepted any more. A holder that has to know that all earlier ones are shut out writes first, and reads then.
//   - Groups. Writers take stamps, and Check accepts those at or above the fence, in any order. Seal raises the fence: once Seal(x) has returned, no
//     write at or below x is accepted. A group begins with Seal; until then, and if a store has lost its fence, Check answers [ErrNoFence].
//
// A token has to come with the grant of the lock, from whoever grants it. A timestamp that a process takes after it has won some other lock is no token:
// one that pauses in between takes a later timestamp than the next holder. Tokens of other services may be used if they grow with each
// grant: the creation revision of an etcd key, or the zxid of ZooKeeper, as the Time of an [isotone.Timestamp].
//
// The stores are [Redis], [Postgres], and with [CAS] all that replace a value by compare-and-set, as object stores do ([Object]). Their fences are
// as durable as the store: a failover of Redis that loses acknowledged writes may lose a fence as well.
// All types may be used by several goroutines at once.
package fence
