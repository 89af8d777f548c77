// Package operator is what commands, and nodes that join, need of a running cluster: how its nodes are
// reached ([Access]), requests that find the leader ([Client]), the search for a node on this machine
// ([Find]), how far a member is ([Progress]), what changes make the members those of a set of pods ([Pods]),
// and the question of a node that joins ([JoinQuestion]).
//
// It prints nothing, asks nobody, and knows no flags but in the advice of its errors.
package operator
