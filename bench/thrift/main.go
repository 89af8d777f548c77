// Thrift measures an ID service over the framed binary protocol or, with -http, over HTTP/1.1,
// and prints rates and latencies in microseconds. See docs/snowflake.md. Without -addr it runs a
// Thrift server in its own process. It checks that the IDs of each connection increase.
package main

import (
	"bufio"
	"context"
	"flag"
	"fmt"
	"log"
	"net"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"github.com/isotone/isotone/internal/front/thriftrpc"
	"github.com/isotone/isotone/snowflake"
)

// latencyMax is the largest latency that the histogram can hold, and how long an answer is waited
// for after the end.
const latencyMax = 10 * time.Second

func main() {
	addr := flag.String("addr", "", "address of the server, HOST:PORT; default: a server in this process")
	conns := flag.Int("c", 8, "connections")
	lasts := flag.Duration("d", 5*time.Second, "duration for each depth")
	rounds := flag.Int("n", 3, "rounds")
	overHTTP := flag.Bool("http", false, "GET /api/snowflake of -addr, over HTTP/1.1, in place of Thrift")
	depths := flag.String("p", "1,16", "depths: how many calls to send at once")
	flag.Parse()
	if flag.NArg() > 0 || *conns < 1 || *rounds < 1 {
		flag.Usage()
		log.Fatal("thrift: want no arguments, and at least one connection and one round")
	}
	if *overHTTP && *addr == "" {
		log.Fatal("thrift: -http needs -addr")
	}
	var p protocol = framed{}
	if *overHTTP {
		p = web{host: *addr}
	}
	if *addr == "" {
		var stop func()
		*addr, stop = serve()
		defer stop()
	}
	fmt.Printf("%s, %d connections, %v\n%8s %10s %10s %10s %10s %10s\n", p, *conns, *lasts, "pipeline", "ids/s", "p50_us", "p99_us", "p99.9_us", "max_us")
	for range *rounds {
		for _, depth := range parse(*depths) {
			h, wall := load(p, *addr, *conns, depth, *lasts)
			fmt.Printf("%8d %10.0f %10d %10d %10d %10d\n", depth, float64(h.TotalCount())/wall.Seconds(),
				micros(h, 50), micros(h, 99), micros(h, 99.9), micros(h, 100))
		}
	}
}

func parse(list string) (depths []int) {
	for part := range strings.SplitSeq(list, ",") {
		depth, err := strconv.Atoi(part)
		if err != nil || depth < 1 {
			log.Fatalf("thrift: -p %q: want whole numbers of at least 1", list)
		}
		depths = append(depths, depth)
	}
	return depths
}

// micros returns a percentile in microseconds, rounded up.
func micros(h *hdrhistogram.Histogram, q float64) int64 {
	return (h.ValueAtQuantile(q) + 999) / 1000
}

// generator makes IDs as worker 33, which is worker 1 of datacenter 1.
type generator struct{ *snowflake.Generator }

func (g generator) NextID() (snowflake.ID, error) { return g.TryNext() }
func (g generator) Worker() (int, int, error)     { return 1, 1, nil }
func (g generator) NowMillis() int64              { return time.Now().UnixMilli() }

// serve starts a server, and returns its address and a function that stops it.
func serve() (addr string, stop func()) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	s := thriftrpc.New(thriftrpc.Config{IDs: generator{snowflake.New(33)}, Observe: func(string, string, string) {}})
	ended := make(chan error, 1)
	go func() { ended <- s.Serve(l) }()
	return l.Addr().String(), func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		if err := s.Shutdown(ctx); err != nil {
			log.Fatal(err)
		}
		if err := <-ended; err != nil {
			log.Fatal(err)
		}
	}
}

// load measures all connections at once, and returns the latencies and the time it took.
func load(p protocol, addr string, conns, depth int, lasts time.Duration) (*hdrhistogram.Histogram, time.Duration) {
	total := hdrhistogram.New(1, int64(latencyMax), 3)
	var mu sync.Mutex
	var all sync.WaitGroup
	begin := time.Now()
	for range conns {
		all.Go(func() {
			h, err := ask(p, addr, depth, begin.Add(lasts))
			if err != nil {
				log.Fatal(err)
			}
			mu.Lock()
			defer mu.Unlock()
			total.Merge(h)
		})
	}
	all.Wait()
	return total, time.Since(begin)
}

// ask repeatedly sends depth calls at once and reads their answers. It checks that the IDs
// increase.
func ask(p protocol, addr string, depth int, until time.Time) (*hdrhistogram.Histogram, error) {
	h := hdrhistogram.New(1, int64(latencyMax), 3)
	c, err := net.Dial("tcp", addr)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	if err := c.SetDeadline(until.Add(latencyMax)); err != nil {
		return nil, err
	}
	var calls []byte
	for range depth {
		calls = append(calls, p.request()...)
	}
	in := bufio.NewReader(c)
	last := snowflake.ID(-1)
	for now := time.Now(); now.Before(until); {
		if _, err := c.Write(calls); err != nil {
			return nil, err
		}
		sent := now
		for range depth {
			id, err := p.answer(in)
			if err != nil {
				return nil, err
			}
			if id <= last {
				return nil, fmt.Errorf("ID %d after %d", id, last)
			}
			last, now = id, time.Now()
			_ = h.RecordValue(int64(min(now.Sub(sent), latencyMax)))
		}
	}
	return h, nil
}
