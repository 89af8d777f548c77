// Command grpc measures gRPC: the references of the case grpc of bench/loop.sh.
//
//	grpc constant ADDR                   serves isotone.v1.Timestamps/Get with grpc-go; the answer is always the same
//	grpc stream ADDR CALLERS SECONDS     has callers ask for one timestamp at a time, over one stream of one client of grpc-go
//
// The second prints how many the callers got, and how long each waited. It checks that timestamps increase.
package main

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"net"
	"os"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/encoding"
)

// raw is a codec for messages that are bytes already.
type raw struct{}

func (raw) Marshal(v any) ([]byte, error) { return *v.(*[]byte), nil }
func (raw) Unmarshal(b []byte, v any) error {
	*v.(*[]byte) = bytes.Clone(b)
	return nil
}
func (raw) Name() string { return "proto" }

func main() {
	encoding.RegisterCodec(raw{})
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "grpc:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	switch {
	case len(args) == 2 && args[0] == "constant":
		return serve(args[1])
	case len(args) == 4 && args[0] == "stream":
		callers, err := strconv.Atoi(args[2])
		if err != nil {
			return err
		}
		seconds, err := strconv.ParseFloat(args[3], 64)
		if err != nil {
			return err
		}
		return stream(args[1], callers, time.Duration(seconds*float64(time.Second)))
	}
	return fmt.Errorf("usage: grpc constant ADDR | grpc stream ADDR CALLERS SECONDS")
}

// answer is a TimestampsGetResponse: 16 bytes, and a count of 1.
var answer = append(append([]byte{0x0a, 0x10}, "0123456789abcdef"...), 0x18, 0x01)

func serve(addr string) error {
	ln, err := net.Listen("tcp", addr)
	if err != nil {
		return err
	}
	s := grpc.NewServer()
	s.RegisterService(&grpc.ServiceDesc{
		ServiceName: "isotone.v1.Timestamps", HandlerType: (*any)(nil),
		Methods: []grpc.MethodDesc{{MethodName: "Get", Handler: func(_ any, _ context.Context, decode func(any) error, _ grpc.UnaryServerInterceptor) (any, error) {
			var request []byte
			return &answer, decode(&request)
		}}},
	}, nil)
	return s.Serve(ln)
}

// turn is what callers have asked for while the message before was being sent.
type turn struct {
	callers []chan timestamp
}

type timestamp struct{ time, index uint64 }

// stream asks for all callers that wait with one message, as a client library does.
func stream(addr string, callers int, d time.Duration) error {
	conn, err := grpc.NewClient(addr, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	defer conn.Close()
	ctx, cancel := context.WithTimeout(context.Background(), d+10*time.Second)
	defer cancel()
	s, err := conn.NewStream(ctx, &grpc.StreamDesc{ClientStreams: true, ServerStreams: true}, "/isotone.v1.Timestamps/Stream")
	if err != nil {
		return err
	}
	asks, sent := &queue{some: make(chan struct{}, 1)}, make(chan turn, underWay-1)
	go send(s, asks, sent)
	failed := make(chan error, 1)
	go func() { failed <- receive(s, sent) }()

	var stop atomic.Bool
	var all sync.WaitGroup
	waits := make([][]time.Duration, callers)
	began := time.Now()
	for i := range callers {
		all.Go(func() {
			mine := make(chan timestamp, 1)
			for last := (timestamp{}); !stop.Load(); {
				asked := time.Now()
				asks.add(mine)
				got, ok := <-mine
				if !ok || got.time < last.time || got.time == last.time && got.index <= last.index {
					return
				}
				last = got
				waits[i] = append(waits[i], time.Since(asked))
			}
		})
	}
	time.AfterFunc(d, func() { stop.Store(true) })
	done := make(chan struct{})
	go func() {
		all.Wait()
		close(done)
	}()
	select {
	case err := <-failed:
		return err
	case <-done:
	}
	took := time.Since(began)
	sum := slices.Concat(waits...)
	slices.Sort(sum)
	n := len(sum)
	fmt.Printf("%d timestamps, %.0f a second, p50 %d µs, p99 %d µs\n", n, float64(n)/took.Seconds(), sum[n/2].Microseconds(), sum[n*99/100].Microseconds())
	return nil
}

// underWay is how many messages are under way, so that callers gather meanwhile: as many as a leader has rounds.
const underWay = 2

// queue has the callers that wait for the next message.
type queue struct {
	mu      sync.Mutex
	waiting []chan timestamp
	some    chan struct{}
}

func (q *queue) add(caller chan timestamp) {
	q.mu.Lock()
	q.waiting = append(q.waiting, caller)
	first := len(q.waiting) == 1
	q.mu.Unlock()
	if first {
		q.some <- struct{}{}
	}
}

func (q *queue) take() (callers []chan timestamp) {
	<-q.some
	q.mu.Lock()
	defer q.mu.Unlock()
	callers, q.waiting = q.waiting, nil
	return callers
}

// send asks for a range for everybody who waits.
func send(s grpc.ClientStream, asks *queue, sent chan<- turn) {
	for {
		callers := asks.take()
		get := binary.AppendUvarint([]byte{0x08}, uint64(len(callers)))
		message := append(append([]byte{0x12}, byte(len(get))), get...)
		if s.SendMsg(&message) != nil {
			return
		}
		sent <- turn{callers}
	}
}

// receive gives each caller its timestamp of the range.
func receive(s grpc.ClientStream, sent <-chan turn) error {
	for t := range sent {
		var message []byte
		if err := s.RecvMsg(&message); err != nil {
			return err
		}
		at := bytes.Index(message, []byte{0x0a, 0x10}) // TimestampsGetResponse.wide
		if at < 0 || len(message) < at+18 {
			return fmt.Errorf("no timestamps: %q", message)
		}
		got := timestamp{binary.BigEndian.Uint64(message[at+2:]), binary.BigEndian.Uint64(message[at+10:])}
		for i, to := range t.callers {
			to <- timestamp{got.time, got.index + uint64(i)}
		}
	}
	return nil
}
