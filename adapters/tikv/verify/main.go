// Command verify is the driver of PD for "isotone verify":
//
//	isotone verify --system exec --nodes 3 --option binary=/path/to/pd-server -- go run ./adapters/tikv/verify
//
// It asks each node by PD's protocol itself, because PD's client would go to whichever leads. compare/pd-server.sh builds the server.
package main

import (
	"fmt"
	"os"

	"github.com/isotone/isotone/internal/check/verify/driver"
)

func main() {
	if err := driver.Serve(os.Stdin, os.Stdout, &system{}); err != nil {
		fmt.Fprintf(os.Stderr, "verify: %v\n", err)
		os.Exit(1)
	}
}
