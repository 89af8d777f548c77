// Far simulates distance between clients and servers on one machine: it relays TCP
// connections and delays all data, in both directions, by a fixed time.
//
//	far --delay 500us LISTEN=TARGET...
//
// See bench/far.sh. In each direction of a connection it holds at most chunksMax chunks,
// besides what is in the kernel's buffers.
package main

import (
	"flag"
	"fmt"
	"log"
	"net"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"
)

const (
	chunkBytes = 16 << 10
	chunksMax  = 64
)

// chunk is the data of one read, and the time at which to write it.
type chunk struct {
	bytes []byte
	due   time.Time
}

func main() {
	log.SetFlags(0)
	log.SetPrefix("far: ")
	delay := flag.Duration("delay", 500*time.Microsecond, "delay in each direction")
	flag.Usage = func() {
		fmt.Fprintln(os.Stderr, "usage: far [--delay D] LISTEN=TARGET...")
		flag.PrintDefaults()
	}
	flag.Parse()
	if flag.NArg() == 0 || *delay < 0 {
		flag.Usage()
		os.Exit(2)
	}
	for _, pair := range flag.Args() {
		listen, target, ok := strings.Cut(pair, "=")
		if !ok {
			log.Fatalf("%q: want LISTEN=TARGET", pair)
		}
		l, err := net.Listen("tcp", listen)
		if err != nil {
			log.Fatal(err)
		}
		go accept(l, target, *delay)
	}
	end := make(chan os.Signal, 1)
	signal.Notify(end, syscall.SIGINT, syscall.SIGTERM)
	<-end
}

func accept(l net.Listener, target string, delay time.Duration) {
	for {
		near, err := l.Accept()
		if err != nil {
			log.Fatal(err)
		}
		go func() {
			far, err := net.Dial("tcp", target)
			if err != nil {
				_ = near.Close()
				return
			}
			go relay(near, far, delay)
			relay(far, near, delay)
		}()
	}
}

// relay copies from one connection to the other with a delay, and then closes both.
func relay(from, to net.Conn, delay time.Duration) {
	passing := make(chan chunk, chunksMax)
	go func() {
		defer close(passing)
		for {
			b := make([]byte, chunkBytes)
			n, err := from.Read(b)
			if n > 0 {
				passing <- chunk{b[:n], time.Now().Add(delay)}
			}
			if err != nil {
				return
			}
		}
	}()
	for c := range passing {
		time.Sleep(time.Until(c.due))
		if _, err := to.Write(c.bytes); err != nil {
			break
		}
	}
	_ = from.Close()
	_ = to.Close()
	for range passing { // until the reader has ended
	}
}
