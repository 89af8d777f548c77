// Package isotone defines the values that all parts of the Isotone timestamp
// oracle share: the 16-byte [Timestamp], the [Range] of consecutive timestamps
// that one request returns, the [ReadMode] of a request, the [ClusterID], and
// the errors ([Error], [Code]) of every protocol.
//
// It imports nothing else of the module. Package client talks to a cluster.
//
// The service follows the timestamp oracle of Peng and Dabek, "Large-scale
// Incremental Processing Using Distributed Transactions and Notifications"
// (OSDI 2010, §2.3), run as a replicated service of its own.
package isotone
