// Package demoscale compares ways to distribute requests over slow, single-threaded workers with small
// caches: the strategies of internal/proxy/balance, and a TCP proxy, a name service and a hash in the client.
//
// It owns the workers, their checked load, and how results are printed and drawn. [Run] is the command
// of examples/joke, whose README.md explains the results; [Scale] tells them in acts for
// "isotone demo scale". Each runs on one goroutine, and must not run beside the other. Package demo has the cluster.
package demoscale
