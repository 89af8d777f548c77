package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"

	"github.com/isotone/isotone/internal/core/wire"
)

const (
	// connsMax bounds the connections that are passed on or echoed at once. The largest load has
	// about a thousand; further ones wait to be accepted.
	connsMax = 4096
	// In each direction a relay holds at most chunksMax chunks, besides what is in the kernel's buffers.
	chunkBytes = 4 << 10
	chunksMax  = 64
	// helloBytesMax is more than any hello of a node has, helloTimeout as long as nodes wait for one.
	helloBytesMax = 16 << 10
	helloTimeout  = 2 * time.Second
	dialTimeout   = time.Second
)

// network is all that listens in this process: relays, which delay what they pass on, and echo
// servers. It is safe for concurrent use. Everything ends with its context, or by close.
type network struct {
	ctx    context.Context
	cancel context.CancelFunc
	work   sync.WaitGroup
	slots  chan struct{} // one is taken by each connection
}

func newNetwork(ctx context.Context) *network {
	n := &network{slots: make(chan struct{}, connsMax)}
	n.ctx, n.cancel = context.WithCancel(ctx)
	return n
}

// close closes all listeners and connections, and waits until their goroutines have ended.
func (n *network) close() {
	n.cancel()
	n.work.Wait()
}

// listen serves the connections to a free port of 127.0.0.1, and returns its address. A connection is
// closed when serve returns, or when the network is closed.
func (n *network) listen(serve func(conn net.Conn)) (addr string, err error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	context.AfterFunc(n.ctx, func() { _ = l.Close() })
	n.work.Go(func() {
		for {
			select {
			case n.slots <- struct{}{}:
			case <-n.ctx.Done():
				return
			}
			conn, err := l.Accept()
			if err != nil {
				return // closed
			}
			n.work.Go(func() {
				defer func() { <-n.slots }()
				defer n.guard(conn)()
				serve(conn)
			})
		}
	})
	return l.Addr().String(), nil
}

// guard closes a connection when the network is closed. The returned function closes it now.
func (n *network) guard(conn net.Conn) (done func()) {
	stop := context.AfterFunc(n.ctx, func() { _ = conn.Close() })
	return func() {
		stop()
		_ = conn.Close()
	}
}

// link returns an address that leads to target, with a delay in each direction.
func (n *network) link(target string, delay time.Duration) (addr string, err error) {
	return n.listen(func(conn net.Conn) { n.pass(conn, nil, target, delay) })
}

// echo returns the address of a server that sends back what it gets: a replica that is written to.
func (n *network) echo() (addr string, err error) {
	return n.listen(func(conn net.Conn) { _, _ = io.Copy(conn, conn) })
}

// front returns an address that leads to the peer port at target. Peers dial the one address that is
// on record for a node, from whatever region, so the delay is that of the node that the first bytes
// name.
func (n *network) front(target string, delays map[uint64]time.Duration) (addr string, err error) {
	return n.listen(func(conn net.Conn) {
		first, id, err := readHello(conn)
		if delay, ok := delays[id]; err == nil && ok {
			n.pass(conn, first, target, delay)
		}
	})
}

// readHello reads the hello of the node that dials, and returns all that was read and the node's ID.
func readHello(conn net.Conn) (first []byte, id uint64, err error) {
	if err := conn.SetReadDeadline(time.Now().Add(helloTimeout)); err != nil {
		return nil, 0, err
	}
	var d wire.Decoder
	d.SetHandshake(true)
	for len(first) < helloBytesMax {
		b := make([]byte, chunkBytes)
		got, err := conn.Read(b)
		if err != nil {
			return nil, 0, err
		}
		first = append(first, b[:got]...)
		d.Feed(b[:got])
		frame, ok, err := d.Next()
		if err != nil {
			return nil, 0, err
		}
		if ok {
			hello, err := wire.ParseHello(frame.Payload)
			return first, hello.NodeID, errors.Join(err, conn.SetReadDeadline(time.Time{}))
		}
	}
	return nil, 0, fmt.Errorf("no hello in %d bytes", helloBytesMax)
}

// pass passes on first and all that follows, in both directions, until one of them ends.
func (n *network) pass(near net.Conn, first []byte, target string, delay time.Duration) {
	d := net.Dialer{Timeout: dialTimeout}
	far, err := d.DialContext(n.ctx, "tcp", target)
	if err != nil {
		return
	}
	defer n.guard(far)()
	var back sync.WaitGroup
	back.Go(func() { relay(far, near, nil, delay) })
	relay(near, far, first, delay)
	back.Wait()
}

// chunk is the data of one read, and the time at which to write it.
type chunk struct {
	bytes []byte
	due   time.Time
}

// relay copies from one connection to the other with a delay, and then closes both.
func relay(from, to net.Conn, first []byte, delay time.Duration) {
	passing := make(chan chunk, chunksMax)
	if len(first) > 0 {
		passing <- chunk{first, time.Now().Add(delay)}
	}
	go func() {
		defer close(passing)
		for {
			b := make([]byte, chunkBytes)
			got, err := from.Read(b)
			if got > 0 {
				passing <- chunk{b[:got], time.Now().Add(delay)}
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
