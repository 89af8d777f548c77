// Package cluster has the tests of the gateway with real nodes and PD's own client.
package cluster
