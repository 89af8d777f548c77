// Package frontier computes, for a group of writers, the stamp at or below which no write is accepted any more: the frontier F.
//
// A writer takes stamps of the oracle's order and writes under them to stores that have a fence. A [Table] is the memory of the leader of one term; nothing of it is
// in the log. It has for each session of a group an entry: the interval of stamps that the session may still write. Stamps of writers whom nobody can ask any more, as
// their session has ended or an earlier leader knew them, are in the hole of the group, another interval. F is below all entries, the hole, and what is not issued yet. To
// close the hole, the table asks a session of the group to have the stores seal it: they raise their fence, and refuse what is below.
//
// The promise: once a frontier was told, no write with a stamp at or below it is accepted, whatever clocks and leaders do, as long as clients report
// their own writes truthfully and stores never lower a fence. F never sinks within a term. A frontier that a deposed leader tells is true as well.
//
// The rules have the numbers R10 to R16 of decision 41.
package frontier
