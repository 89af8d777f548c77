// Package isotone is the vocabulary of the Isotone timestamp oracle: the
// 16-byte hybrid [Timestamp], the [Range] of consecutive timestamps that one
// request returns, the [ReadMode] of a request, and the one error vocabulary
// ([Error], [Code]) that every protocol spells in its own way.
//
// It holds no behaviour beyond these values, imports nothing of the module and
// is safe to import from anywhere. To talk to a cluster over HTTP see the
// protocol table in the README.
//
// The service follows the timestamp oracle of Peng and Dabek, "Large-scale
// Incremental Processing Using Distributed Transactions and Notifications"
// (OSDI 2010, §2.3), run as a replicated service of its own.
package isotone
