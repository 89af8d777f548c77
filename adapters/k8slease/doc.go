// Package k8slease elects the leader of a program of Kubernetes by a lock of an Isotone cluster, in place of a Lease of the API server. [New] returns a [resourcelock.Interface] for client-go's elector, package
// k8s.io/client-go/tools/leaderelection: the program calls it in place of resourcelock.New, and stays as it is otherwise. It gets a fencing token with [Lock.Token], so that stores can refuse what a former leader writes.
//
// # The record
//
// The value of the lock is the identity of the holder. All else of a LeaderElectionRecord follows from what the cluster knows when it is asked:
//
//   - HolderIdentity is the identity, and "" if nobody holds the lock. A holder that gives no value, and one with the identity of the asking process that is not this process (an earlier one, before a restart), have their token
//     behind it.
//   - AcquireTime is that of the token, RenewTime is now, and LeaseDurationSeconds 1: the cluster has confirmed the holder at this moment. Electors compare no clocks of different machines.
//   - LeaderTransitions is 0. The token takes its place: it grows with each change of the leader, also where nobody has seen the change. In the raw record it is in the field token.
//   - Strategy and PreferredHolder are empty: the API server cannot choose the leader (Coordinated).
//
// # Terms
//
// From when the elector acquires the lock until it releases or loses it, the lock has a session of its own, whose TTL is the elector's LeaseDuration. A renewal asks the cluster whether the session is alive, and succeeds only if the lock
// is then sure for nine tenths of LeaseDuration, counted from its return. So if RenewDeadline and RetryPeriod together are at most that, as client-go's defaults are (10 s and 2 s of 15 s), the elector has stopped leading before somebody else can
// acquire the lock. That holds as long as clocks run at the right rate. As with a Lease, a process that was paused learns late that it does not lead any more; the token protects what it writes meanwhile.
//
// The session keeps itself alive, but not for an elector that has stopped or hangs: without a renewal for a LeaseDuration the lock is released. A lock that was lost is not acquired by the same process for a LeaseDuration, so that its elector stops leading first:
// client-go's would go on in a new term as if nobody else had led meanwhile. So the token does not change while the elector leads.
//
// The lock of a process that has died is free after LeaseDuration · 11/9, and at once if the elector releases it (ReleaseOnCancel). LeaseDuration is 1 s to 1 min, and counts in whole seconds.
package k8slease
