// Client measures the Go client against a running cluster: the latency of a direct call
// compared with the same request on a bare connection, and the rate of timestamps for many
// goroutines that each request one at a time, compared with how fast the Go scheduler can
// wake them. It does not start the cluster; bench/client.sh does.
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

// result is the output.
type result struct {
	Mode string `json:"mode"`
	// Medians of all rounds: the p50 latencies of one request at a time, on a bare
	// connection and through the client, and their ratio.
	RawMicros    float64 `json:"raw_p50_us"`
	ClientMicros float64 `json:"client_p50_us"`
	Ratio        float64 `json:"ratio"`
	Loads        []load  `json:"loads"`
}

// load is the result for one number of goroutines.
type load struct {
	Goroutines int     `json:"goroutines"`
	PerSecond  float64 `json:"timestamps_per_s"`
	// Batch is the mean number of calls per request.
	Batch float64 `json:"calls_per_request"`
	P50   float64 `json:"p50_us"`
	P99   float64 `json:"p99_us"`
	// Wakes is how many times per second the same number of goroutines can wait for each
	// other without the client: the limit that the Go scheduler sets. See wakes.
	Wakes float64 `json:"wakes_per_s"`
}

func run(args []string, out io.Writer) error {
	flags := flag.NewFlagSet("client", flag.ContinueOnError)
	flags.Usage = func() {
		fmt.Fprintln(flags.Output(), "usage: client [flags] HOST:PORT...")
		flags.PrintDefaults()
	}
	goroutines := flags.String("goroutines", "1,64,1000,10000", "numbers of goroutines, one measurement for each")
	duration := flags.Duration("duration", 3*time.Second, "length of each measurement with goroutines")
	rounds := flags.Int("rounds", 5, "rounds of the comparison with a bare connection, one second each")
	conns := flags.Int("conns", 0, "connections to the leader; 0: the client's default")
	others := flags.Int("others", 0, "goroutines in the same process that compute all the time while the others request timestamps")
	work := flags.Int("work", 0, "steps, of a few nanoseconds each, that a goroutine computes after each call")
	inFlight := flags.Int("in-flight", 1, "requests that each goroutine keeps under way: with 1 it calls Timestamp, with more TimestampAsync")
	mode := flags.String("mode", "quorum", "quorum or lease")
	asJSON := flags.Bool("json", false, "print JSON")
	profile := flags.String("cpuprofile", "", "write a CPU profile of the measurements with goroutines to this file")
	if err := flags.Parse(args); err != nil {
		return err
	}
	counts, err := parseCounts(*goroutines)
	if err != nil {
		return err
	}
	if *inFlight < 1 || *inFlight > 1<<16 {
		return fmt.Errorf("--in-flight %d: want 1 to 65536", *inFlight)
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
		l, err := measure(c, n, *inFlight, *work, *duration, &requests, &calls)
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
			return nil, fmt.Errorf("--goroutines %q: want whole numbers from 1 to 1000000", text)
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

// roundLength is the length of each half of a round.
const roundLength = 500 * time.Millisecond

// compare makes one request at a time, in each round on a bare connection and then through
// the client.
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

// timed repeats do for roundLength, and returns the median duration in microseconds.
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
		return fmt.Errorf("the leader answered %q", answer[:n])
	}
	return nil
}

// dialLeader connects to addr, or to the leader that it names with MOVED.
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

// sampleMax limits the number of recorded latencies.
const sampleMax = 1 << 20

// otherSteps is how many steps the goroutines of --others compute before they yield.
const otherSteps = 10_000

// burned keeps the compiler from removing the loop in burn.
var burned atomic.Uint64

// burn computes the given number of steps.
func burn(steps int) {
	x := uint64(1)
	for range steps {
		x = x*6364136223846793005 + 1442695040888963407
	}
	if x == 0 { // never
		burned.Add(x)
	}
}

// measure runs n goroutines that request one timestamp after another and compute work steps
// in between. It returns an error if the timestamps of a goroutine do not increase.
func measure(c *client.Client, n, inFlight, work int, duration time.Duration, requests, calls *atomic.Uint64) (load, error) {
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
		// This frame is small: the larger the stack of a goroutine, the longer it takes
		// to resume it.
		if inFlight > 1 {
			wg.Go(func() {
				count, err := pipeline(c, inFlight, &stop)
				if total.Add(count); err != nil {
					fail(err)
				}
			})
			continue
		}
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
	wg.Go(func() { // the one goroutine that records latencies
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

// pipeline keeps inFlight requests under way until stop is set, and returns how many were answered.
func pipeline(c *client.Client, inFlight int, stop *atomic.Bool) (count uint64, err error) {
	ctx := context.Background()
	futures := make([]client.Future, inFlight)
	for i := range futures {
		futures[i] = c.TimestampAsync(ctx)
	}
	for i := 0; !stop.Load(); i = (i + 1) % inFlight {
		if _, err := futures[i].Wait(); err != nil {
			return count, err
		}
		count++
		futures[i] = c.TimestampAsync(ctx)
	}
	for i := range futures {
		if _, err := futures[i].Wait(); err != nil {
			return count, err
		}
	}
	return count, nil
}

// crowd is a barrier for half of the goroutines.
type crowd struct {
	left atomic.Int64 // goroutines that have yet to arrive
	full chan struct{}
}

func newCrowd(n int) *crowd {
	c := &crowd{full: make(chan struct{})}
	c.left.Store(int64(max(n/2, 1)))
	return c
}

// wakes runs n goroutines that wait in two crowds, where the last to arrive wakes the others.
// It returns how many times per second a goroutine passed a crowd.
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
				case left < 0: // complete already
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
			c := open.Load() // too few goroutines are left to complete it
			if left := c.left.Load(); left > 0 && c.left.CompareAndSwap(left, 0) {
				close(c.full)
			}
		}
	}
}

func micros(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }

// at sorts the values and returns a quantile, 0 to 1; 0 if there are none.
func at(values []float64, quantile float64) float64 {
	if len(values) == 0 {
		return 0
	}
	slices.Sort(values)
	return values[int(quantile*float64(len(values)-1)+0.5)]
}
