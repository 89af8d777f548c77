// Client measures the Go client against a cluster that runs: how long a direct call takes
// beside the same request on a bare connection, and how many timestamps a second many
// goroutines get, each of which asks for one at a time, beside what the scheduler of Go
// allows. It starts nothing itself; see bench/client.sh.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"runtime"
	"runtime/pprof"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"text/tabwriter"
	"time"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/client"
)

func main() {
	if err := run(os.Args[1:], os.Stdout); err != nil {
		if !errors.Is(err, flag.ErrHelp) {
			fmt.Fprintln(os.Stderr, "client:", err)
		}
		os.Exit(2)
	}
}

// result is what is printed.
type result struct {
	Mode string `json:"mode"`
	// Raw and Client are p50 of one request at a time, medians of the rounds, and of
	// their ratios.
	RawMicros    float64 `json:"raw_p50_us"`
	ClientMicros float64 `json:"client_p50_us"`
	Ratio        float64 `json:"ratio"`
	Loads        []load  `json:"loads"`
}

// load is one number of goroutines.
type load struct {
	Goroutines int     `json:"goroutines"`
	PerSecond  float64 `json:"timestamps_per_s"`
	// Batch is how many calls shared a request, on average.
	Batch float64 `json:"calls_per_request"`
	P50   float64 `json:"p50_us"`
	P99   float64 `json:"p99_us"`
	// Wakes is how many times a second as many goroutines can wait for each other, with
	// nothing to do and no client: what the scheduler of Go allows on all processors.
	Wakes float64 `json:"wakes_per_s"`
}

func run(args []string, out io.Writer) error {
	flags := flag.NewFlagSet("client", flag.ContinueOnError)
	flags.Usage = func() {
		fmt.Fprintln(flags.Output(), "usage: client [flags] HOST:PORT...")
		flags.PrintDefaults()
	}
	goroutines := flags.String("goroutines", "1,64,1000,10000", "numbers of goroutines")
	duration := flags.Duration("duration", 3*time.Second, "length of each load")
	rounds := flags.Int("rounds", 5, "rounds of the comparison with a bare connection, half a second each way")
	conns := flags.Int("conns", 0, "connections to the leader; 0: the client's default")
	others := flags.Int("others", 0, "goroutines of the same process that never rest, while the loads are measured")
	work := flags.Int("work", 0, "what a caller does after each call: so many steps of some nanoseconds")
	mode := flags.String("mode", "quorum", "quorum or lease")
	asJSON := flags.Bool("json", false, "print JSON")
	profile := flags.String("cpuprofile", "", "write a CPU profile of the loads to this file")
	if err := flags.Parse(args); err != nil {
		return err
	}
	counts, err := parseCounts(*goroutines)
	if err != nil {
		return err
	}
	readMode, err := isotone.ParseReadMode(*mode)
	if err != nil {
		return err
	}
	var requests, calls atomic.Uint64
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	c, err := client.NewWith(ctx, client.Options{Addrs: flags.Args(), Mode: readMode, Conns: *conns, Hooks: client.Hooks{
		Answered: func(a client.Answer) { requests.Add(1); calls.Add(a.Calls) },
	}})
	if err != nil {
		return err
	}
	defer c.Close()
	r := result{Mode: *mode}
	if err := r.compare(c, flags.Args()[0], *rounds); err != nil {
		return err
	}
	if *profile != "" {
		f, err := os.Create(*profile)
		if err != nil {
			return err
		}
		defer f.Close()
		if err := pprof.StartCPUProfile(f); err != nil {
			return err
		}
		defer pprof.StopCPUProfile()
	}
	var rest atomic.Bool
	for range *others {
		go func() {
			for !rest.Load() {
				burn(otherSteps)
				runtime.Gosched()
			}
		}()
	}
	defer rest.Store(true)
	for _, n := range counts {
		l, err := measure(c, n, *work, *duration, &requests, &calls)
		if err != nil {
			return err
		}
		l.Wakes = wakes(n, *duration/3)
		r.Loads = append(r.Loads, l)
	}
	if *asJSON {
		e := json.NewEncoder(out)
		e.SetIndent("", "  ")
		return e.Encode(r)
	}
	return r.print(out)
}

func parseCounts(text string) (counts []int, err error) {
	for word := range strings.SplitSeq(text, ",") {
		n, err := strconv.Atoi(word)
		if err != nil || n < 1 || n > 1_000_000 {
			return nil, fmt.Errorf("%q is no number of goroutines", word)
		}
		counts = append(counts, n)
	}
	return counts, nil
}

func (r *result) print(out io.Writer) error {
	fmt.Fprintf(out, "one request at a time, %s: p50 %.1f µs on a bare connection, %.1f µs through the client, ratio %.2f\n\n",
		r.Mode, r.RawMicros, r.ClientMicros, r.Ratio)
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "goroutines\ttimestamps/s\tcalls per request\tp50 µs\tp99 µs\twakes/s\t")
	for _, l := range r.Loads {
		fmt.Fprintf(w, "%d\t%.0f\t%.1f\t%.0f\t%.0f\t%.0f\t\n", l.Goroutines, l.PerSecond, l.Batch, l.P50, l.P99, l.Wakes)
	}
	return w.Flush()
}

// roundLength is that of each half of a round.
const roundLength = 500 * time.Millisecond

// compare asks one after the other, in turns on a bare connection and through the client.
func (r *result) compare(c *client.Client, addr string, rounds int) error {
	conn, err := dialLeader(addr)
	if err != nil {
		return err
	}
	defer conn.Close()
	command := []byte("*3\r\n$2\r\nTS\r\n$1\r\n1\r\n$6\r\nQUORUM\r\n")
	if r.Mode == "lease" {
		command = []byte("*3\r\n$2\r\nTS\r\n$1\r\n1\r\n$5\r\nLEASE\r\n")
	}
	answer := make([]byte, 256)
	var raw, ours, ratios []float64
	for range rounds {
		a, err := timed(func() error { return rawRequest(conn, command, answer) })
		if err != nil {
			return err
		}
		b, err := timed(func() error { _, err := c.Timestamp(context.Background()); return err })
		if err != nil {
			return err
		}
		raw, ours, ratios = append(raw, a), append(ours, b), append(ratios, b/a)
	}
	r.RawMicros, r.ClientMicros, r.Ratio = at(raw, 0.5), at(ours, 0.5), at(ratios, 0.5)
	return nil
}

// timed repeats what it is given for a while, and returns the median in microseconds.
func timed(do func() error) (float64, error) {
	var took []float64
	for begin := time.Now(); time.Since(begin) < roundLength; {
		start := time.Now()
		if err := do(); err != nil {
			return 0, err
		}
		took = append(took, micros(time.Since(start)))
	}
	return at(took, 0.5), nil
}

func rawRequest(conn net.Conn, command, answer []byte) error {
	if _, err := conn.Write(command); err != nil {
		return err
	}
	n, err := conn.Read(answer)
	if err != nil {
		return err
	}
	if answer[0] != '$' {
		return fmt.Errorf("the leader answers %q", answer[:n])
	}
	return nil
}

// dialLeader follows MOVED once.
func dialLeader(addr string) (net.Conn, error) {
	conn, err := net.DialTimeout("tcp", addr, time.Second)
	if err != nil {
		return nil, err
	}
	answer := make([]byte, 256)
	if _, err := conn.Write([]byte("TS 1\r\n")); err != nil {
		return nil, err
	}
	n, err := conn.Read(answer)
	if err != nil {
		return nil, err
	}
	if leader, moved := strings.CutPrefix(strings.TrimSpace(string(answer[:n])), "-MOVED 0 "); moved {
		conn.Close()
		return net.DialTimeout("tcp", leader, time.Second)
	}
	return conn, nil
}

// sampleMax bounds the latencies that are kept.
const sampleMax = 1 << 20

// otherSteps is how long others work before they let someone else.
const otherSteps = 10_000

// burned keeps what burn does from being left out.
var burned atomic.Uint64

// burn works for so many steps.
func burn(steps int) {
	x := uint64(1)
	for range steps {
		x = x*6364136223846793005 + 1442695040888963407
	}
	if x == 0 { // never
		burned.Add(x)
	}
}

// measure has n goroutines ask for one timestamp after the other, and work for so many
// steps in between. Each wants its own to increase.
func measure(c *client.Client, n, work int, duration time.Duration, requests, calls *atomic.Uint64) (load, error) {
	ctx := context.Background()
	var stop, failed atomic.Bool
	var total atomic.Uint64
	var failure error
	var once sync.Once
	var took []float64
	var wg sync.WaitGroup
	fail := func(err error) {
		once.Do(func() { failure = err })
		failed.Store(true)
	}
	for range n - 1 {
		// Little in this frame: the more a goroutine has on its stack, the longer it
		// takes to come back to it.
		wg.Go(func() {
			var last isotone.Timestamp
			count := uint64(0)
			for !stop.Load() {
				ts, err := c.Timestamp(ctx)
				if err != nil || !last.Before(ts) {
					fail(fmt.Errorf("%v after %v, %w", ts, last, err))
					return
				}
				last = ts
				count++
				burn(work)
			}
			total.Add(count)
		})
	}
	wg.Go(func() { // one that takes the time
		for !stop.Load() {
			begin := time.Now()
			if _, err := c.Timestamp(ctx); err != nil {
				fail(err)
				return
			}
			if total.Add(1); len(took) < sampleMax {
				took = append(took, micros(time.Since(begin)))
			}
			burn(work)
		}
	})
	begin, requestsBefore, callsBefore := time.Now(), requests.Load(), calls.Load()
	for time.Since(begin) < duration && !failed.Load() {
		time.Sleep(50 * time.Millisecond)
	}
	stop.Store(true)
	elapsed := time.Since(begin).Seconds()
	wg.Wait()
	if failure != nil {
		return load{}, failure
	}
	sent := max(requests.Load()-requestsBefore, 1)
	return load{
		Goroutines: n, PerSecond: float64(total.Load()) / elapsed,
		Batch: float64(calls.Load()-callsBefore) / float64(sent), P50: at(took, 0.5), P99: at(took, 0.99),
	}, nil
}

// crowd is half of the goroutines that wait for each other.
type crowd struct {
	left atomic.Int64 // how many are missing
	full chan struct{}
}

func newCrowd(n int) *crowd {
	c := &crowd{full: make(chan struct{})}
	c.left.Store(int64(max(n/2, 1)))
	return c
}

// wakes has n goroutines wait in two crowds: whoever completes one wakes all others in
// it. It returns how many times a second one of them went on.
func wakes(n int, duration time.Duration) float64 {
	var open atomic.Pointer[crowd]
	open.Store(newCrowd(n))
	var stop atomic.Bool
	var total atomic.Uint64
	var wg sync.WaitGroup
	for range n {
		wg.Go(func() {
			count := uint64(0)
			for !stop.Load() {
				c := open.Load()
				switch left := c.left.Add(-1); {
				case left == 0:
					open.Store(newCrowd(n))
					close(c.full)
				case left < 0: // too late for this one
					runtime.Gosched()
					continue
				default:
					<-c.full
				}
				count++
			}
			total.Add(count)
		})
	}
	begin := time.Now()
	time.Sleep(duration)
	stop.Store(true)
	elapsed := time.Since(begin).Seconds()
	ended := make(chan struct{})
	go func() { wg.Wait(); close(ended) }()
	for {
		select {
		case <-ended:
			return float64(total.Load()) / elapsed
		case <-time.After(time.Millisecond):
			c := open.Load() // those who are left are too few to complete it
			if left := c.left.Load(); left > 0 && c.left.CompareAndSwap(left, 0) {
				close(c.full)
			}
		}
	}
}

func micros(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }

// at returns a quantile.
func at(values []float64, quantile float64) float64 {
	if len(values) == 0 {
		return 0
	}
	slices.Sort(values)
	return values[int(quantile*float64(len(values)-1)+0.5)]
}
