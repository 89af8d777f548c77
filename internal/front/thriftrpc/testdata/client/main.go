// Program client asks servers by the Thrift library for Go, with code that the Thrift compiler
// generates from the interface, with its exceptions or without.
//
// Usage: client ADDR CLOCK-ADDR. At CLOCK-ADDR the clock is bad. It prints a line for each way
// that works, and panics at the first that does not.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/apache/thrift/lib/go/thrift"

	"client/gen-go/snowflake"
)

var protocols = map[string]thrift.TProtocolFactory{
	"binary":  thrift.NewTBinaryProtocolFactoryConf(nil),
	"compact": thrift.NewTCompactProtocolFactoryConf(nil),
	"json":    thrift.NewTJSONProtocolFactory(),
}

// connect opens a connection, and passes its client to use.
func connect(addr string, protocol thrift.TProtocolFactory, framed bool, use func(*snowflake.SnowflakeClient)) {
	var transport thrift.TTransport = thrift.NewTSocketConf(addr, nil)
	if framed {
		transport = thrift.NewTFramedTransportConf(transport, nil)
	} else {
		transport = thrift.NewTBufferedTransport(transport, 4096)
	}
	must(transport.Open())
	defer transport.Close()
	use(snowflake.NewSnowflakeClientFactory(transport, protocol))
}

// wantIDs asks for an ID by every kind of user agent.
func wantIDs(c *snowflake.SnowflakeClient) {
	var last int64
	for _, agent := range []string{"go-test", "my_app", "", "7", "a b", strings.Repeat("x", 4096)} {
		id, err := c.GetID(context.Background(), agent)
		must(err)
		if id <= last {
			panic(fmt.Sprintf("user agent %.20q: ID %d after %d", agent, id, last))
		}
		last = id
	}
}

// wantErrors checks that no method answers with a number.
func wantErrors(c *snowflake.SnowflakeClient) {
	for what, call := range map[string]func() (int64, error){
		"get_id":            func() (int64, error) { return c.GetID(context.Background(), "go-test") },
		"get_worker_id":     func() (int64, error) { return c.GetWorkerID(context.Background()) },
		"get_datacenter_id": func() (int64, error) { return c.GetDatacenterID(context.Background()) },
	} {
		number, err := call()
		var fault thrift.TApplicationException
		if !errors.As(err, &fault) || fault.Error() != "clock: the clock cannot be trusted" {
			panic(fmt.Sprintf("%s with a bad clock: %d, %v", what, number, err))
		}
	}
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}

func main() {
	for name, protocol := range protocols {
		for _, framed := range []bool{false, true} {
			connect(os.Args[1], protocol, framed, wantIDs)
			connect(os.Args[2], protocol, framed, wantErrors)
			fmt.Printf("%s framed=%v\n", name, framed)
		}
	}
}
