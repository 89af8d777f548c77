// Joke compares the strategies of internal/proxy/balance under the same load: ten slow, single-threaded
// echo servers, each with a cache for two answers, behind internal/proxy. README.md explains
// the results.
//
// "joke models" compares ways to distribute requests: a TCP proxy, a name service, and a hash in
// the client, while one of the workers dies and comes back.
//
// It owns nothing but the process: internal/check/demoscale has the rest.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"github.com/isotone/isotone/internal/check/demoscale"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // so that a second signal ends the process at once
	code := demoscale.Run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}
