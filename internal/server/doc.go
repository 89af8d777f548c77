// Package server is what the processes of command isotone consist of. A node: its sockets ([Listen]), the search
// for its cluster or its initial members ([Serve]), and the member with everything that speaks with clients and
// operators ([Start]). A proxy: [StartHTTPProxy], [StartTCPProxy] and [StartGateway].
//
// The package composes others and decides little itself. Flags, help and the form of the log belong to
// command isotone.
package server
