// Package check finds anomalies in histories of transactions: what snapshot isolation, and with it a
// real-time order, forbids. It knows no store and no protocol.
//
// A history has transactions over lists, to which they append, and registers, which they write. No
// value is written twice to one key, so a read tells which transactions it depends on. That is the
// method of Elle (Kingsbury and Alvaro, "Elle: Inferring Isolation Anomalies from Experimental
// Observations", VLDB 2020). A list shows the order of its writes; the order of the writes of a
// register is known from transactions that read it before they write it, or is given by the history.
//
// The anomalies are those of Adya ("Weak Consistency: A Generalized Theory and Optimistic
// Implementations for Distributed Transactions", 1999): cycles of the dependencies of transactions.
// In a dependency of kind
//
//   - ww, the second transaction wrote the next version of a key after the first;
//   - wr, the second read a version that the first wrote;
//   - rw, the second wrote the next version after one that the first read;
//   - rt, the first had ended before the second began.
//
// Under snapshot isolation each transaction has a start and a commit, and takes effect at the commit.
// In a dependency of any kind but rw, the first commits before the second starts: for ww because of
// two writers of one key, one starts after the other has committed. In rw, the first starts before
// the second commits. So times would run in a circle in every cycle in which no two dependencies of
// kind rw follow each other, and none can exist (Cerone and Gotsman, "Analysing Snapshot Isolation",
// JACM 2018). Cycles with two in a row, such as write skew, are allowed, and are not reported.
package check
