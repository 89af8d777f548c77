// Thrift measures an ID service over the framed binary protocol, and prints rates and
// latencies. See docs/thrift.md. Without -addr it runs the server in its own process.
package main

import (
	"bufio"
	"context"
	"encoding/binary"
	"flag"
	"fmt"
	"io"
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

// latencyMax is the largest latency that the histogram can hold; longer ones count as this.
const latencyMax = int64(10 * time.Second)

func main() {
	addr := flag.String("addr", "", "address of the server, HOST:PORT; default: a server in this process")
	conns := flag.Int("c", 8, "connections")
	lasts := flag.Duration("d", 5*time.Second, "duration for each depth")
	rounds := flag.Int("n", 3, "rounds")
	depths := flag.String("p", "1,16", "depths: how many calls to send at once")
	flag.Parse()
	if flag.NArg() > 0 || *conns < 1 || *rounds < 1 {
		flag.Usage()
		log.Fatal("thrift: want no arguments, and at least one connection and one round")
	}
	if *addr == "" {
		var stop func()
		*addr, stop = serve()
		defer stop()
	}
	fmt.Printf("get_id, framed binary, %d connections, %v\n%8s %10s %10s %10s %10s\n", *conns, *lasts, "pipeline", "ids/s", "p50", "p99", "p99.9")
	for range *rounds {
		for _, depth := range parse(*depths) {
			h, wall := load(*addr, *conns, depth, *lasts)
			fmt.Printf("%8d %10.0f %10v %10v %10v\n", depth, float64(h.TotalCount())/wall.Seconds(), quantile(h, 50), quantile(h, 99), quantile(h, 99.9))
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

func quantile(h *hdrhistogram.Histogram, q float64) time.Duration {
	return time.Duration(h.ValueAtQuantile(q)).Round(time.Microsecond)
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
func load(addr string, conns, depth int, lasts time.Duration) (*hdrhistogram.Histogram, time.Duration) {
	total := hdrhistogram.New(1, latencyMax, 3)
	var mu sync.Mutex
	var all sync.WaitGroup
	begin := time.Now()
	for range conns {
		all.Go(func() {
			h, err := ask(addr, depth, begin.Add(lasts))
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

// An answer is a frame: its length, the head of a message, and field 0 with the ID.
const (
	answerBytes = 4 + 4 + 4 + len("get_id") + 4 + 1 + 2 + 8 + 1
	idAt        = answerBytes - 9
)

// request returns the frame of one call.
func request() []byte {
	const agent = "isotone-bench"
	b := []byte{0, 0, 0, 0, 0x80, 1, 0, 1}
	b = binary.BigEndian.AppendUint32(b, uint32(len("get_id")))
	b = append(b, "get_id\x00\x00\x00\x01\x0b\x00\x01"...)
	b = binary.BigEndian.AppendUint32(b, uint32(len(agent)))
	b = append(append(b, agent...), 0)
	binary.BigEndian.PutUint32(b, uint32(len(b)-4))
	return b
}

// ask repeatedly sends depth calls at once and reads their answers. It checks that the IDs
// increase.
func ask(addr string, depth int, until time.Time) (*hdrhistogram.Histogram, error) {
	h := hdrhistogram.New(1, latencyMax, 3)
	c, err := net.Dial("tcp", addr)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	var calls []byte
	for range depth {
		calls = append(calls, request()...)
	}
	in := bufio.NewReader(c)
	answer := make([]byte, answerBytes)
	var last uint64
	for now := time.Now(); now.Before(until); {
		if _, err := c.Write(calls); err != nil {
			return nil, err
		}
		sent := now
		for range depth {
			if _, err := io.ReadFull(in, answer); err != nil {
				return nil, err
			}
			id := binary.BigEndian.Uint64(answer[idAt:])
			if answer[idAt-3] != 10 || id <= last {
				return nil, fmt.Errorf("ID %d after %d: %x", id, last, answer)
			}
			last, now = id, time.Now()
			_ = h.RecordValue(min(int64(now.Sub(sent)), latencyMax))
		}
	}
	return h, nil
}
