// Command isotone-live loads a live document from MongoDB or PostgreSQL for a node, which starts it
// when LIVE has a source there. See docs/live.md.
package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime/debug"
	"syscall"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/adapters/livestores/mongo"
	"github.com/isotone/isotone/adapters/livestores/postgres"
	"github.com/isotone/isotone/internal/live/store"
)

const help = `isotone-live loads live documents from MongoDB and PostgreSQL for "isotone serve", which starts it for
each document of LIVE with a URL of these databases. Install it beside isotone or in PATH; it has no
settings. To try a URL without a node, give it on standard input, where others do not see its password:

    echo 'postgres://app@db.example/shop#SELECT doc FROM live' | isotone-live get
`

func main() {
	// The memory of one document; the default would keep twice of it as garbage.
	debug.SetGCPercent(50)
	os.Exit(run(os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}

// run executes one command line and returns the exit code.
func run(args []string, in io.Reader, out, errs io.Writer) int {
	switch {
	case len(args) == 0 && !isTerminal(in):
		// Whoever stops the node stops this by the end of its input, after the last load.
		signal.Ignore(os.Interrupt, syscall.SIGTERM)
		if err := store.Serve(context.Background(), in, out, open); err != nil {
			fmt.Fprintln(errs, "isotone-live:", err)
			return 1
		}
		return 0
	case len(args) == 1 && args[0] == "get":
		if err := get(in, out); err != nil {
			fmt.Fprintln(errs, "isotone-live:", err)
			return 1
		}
		return 0
	case len(args) == 0, len(args) == 1 && (args[0] == "--help" || args[0] == "-h" || args[0] == "help"):
		fmt.Fprint(out, help)
		return 0
	}
	fmt.Fprintf(errs, "isotone-live: want no arguments, or get\n\n%s", help)
	return 2
}

func isTerminal(in io.Reader) bool {
	f, ok := in.(*os.File)
	if !ok {
		return false
	}
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}

// open returns the loader for a URL.
func open(u *store.URL) (store.Loader, error) {
	switch u.Scheme {
	case "mongodb", "mongodb+srv":
		return mongo.Open(u)
	case "postgres":
		return postgres.Open(u)
	}
	return nil, isotone.Errorf(isotone.CodeInvalidArgument, "%.20q is no scheme of a database", u.Scheme)
}
