// Package node has the tests of PD_PORT of nodes with PD's own client, and of internal/front/pd with kvproto.
package node
