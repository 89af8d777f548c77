// Command ferretdb is a server that speaks MongoDB's protocol, for tests: FerretDB over SQLite, from
// the Go proxy, as MongoDB itself is in no registry that the tests can ask. It is a module of its
// own because it needs many others.
//
//	ferretdb 127.0.0.1:PORT DIRECTORY
//
// It serves until its standard input ends. FerretDB has no access control here.
package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"

	"github.com/FerretDB/FerretDB/ferretdb"
)

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "ferretdb: want an address and a directory")
		os.Exit(2)
	}
	if err := serve(os.Args[1], os.Args[2]); err != nil {
		fmt.Fprintln(os.Stderr, "ferretdb:", err)
		os.Exit(1)
	}
}

func serve(address, dir string) error {
	f, err := ferretdb.New(&ferretdb.Config{
		Listener:  ferretdb.ListenerConfig{TCP: address},
		Logger:    slog.New(slog.DiscardHandler),
		Handler:   "sqlite",
		SQLiteURL: "file:" + dir + "/",
	})
	if err != nil {
		return err
	}
	ctx, stop := context.WithCancel(context.Background())
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		stop()
	}()
	return f.Run(ctx)
}
