// Package sim simulates clients of package txn over simulated stores and a simulated oracle, from one
// seed. The same seed gives the same run, so every failure can be replayed.
//
// The clients are real: they run package txn, with all of its goroutines. But every call of a store,
// of the oracle and of the timer waits for the scheduler, which lets everything come to rest (package
// testing/synctest), chooses one call by chance, and carries it out. So it owns the order of all
// steps. The clients' steady clocks run as it has them run. Of the stores' writes, some are lost, some lose their answer, and some
// are reported as failed and carried out later, even much later. Clients crash between any two steps,
// stall, and are cut off. The oracle fails over: it answers with errors for a while, and then continues further on.
// Its time jumps ahead, so that locks expire under clients that are alive, and stands still, so that they expire
// by the clients' clocks.
//
// In half of the runs the stores sync writes later than they show them. They restart and fail over, which loses
// what was not synced, and a sync may fail. They keep the contract of txn.Store all the same: deliberate bugs
// are stores that do not.
//
// The clients append to lists, write registers, move money between accounts, scan, and collect
// garbage. Checked are the history (package check), also what transactions read that failed
// later, the total of the accounts in every snapshot, and that in the end, without faults, everything
// can be read.
package sim
