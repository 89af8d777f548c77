// Streams is the readers of bench/streams.sh: streams of a live document on few connections of HTTP/2, or each on one of
// HTTP/1.1. It replaces the document once a second, and demands that each stream gets each change.
//
//	streams [FLAGS] HOST:PORT PID FILE      the address and the process of the node, and the document's file
package main

import (
	"bufio"
	"bytes"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"net"
	"net/http/httputil"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// patience bounds the wait for all readers to have a document.
const patience = time.Minute

var (
	connections = flag.Int("connections", 100, "connections")
	streams     = flag.Int("streams", 100, "streams on each; 0: one in HTTP/1.1")
	changes     = flag.Int("changes", 10, "changes of the document, one a second")
	size        = flag.Int("bytes", 1000, "size of the document")
)

// arrived counts the readers that have document n.
var arrived []atomic.Int64

// began is the beginning of an event.
const began = `data: {"n":`

// note counts the newest document in b for a reader that had document last, and returns what the reader has now.
func note(b []byte, last int) (int, error) {
	at := bytes.LastIndex(b, []byte(began))
	if at < 0 {
		return last, nil
	}
	text, _, _ := bytes.Cut(b[at+len(began):], []byte(","))
	n, err := strconv.Atoi(string(text))
	if err != nil || n >= len(arrived) || last > 0 && n != last+1 {
		return 0, fmt.Errorf("document %q after %d", text, last)
	}
	arrived[n].Add(1)
	return n, nil
}

// openHTTP1 begins a stream, and returns what reads it.
func openHTTP1(conn net.Conn) (func() error, error) {
	_, err := io.WriteString(conn, "GET /live/doc/stream HTTP/1.1\r\nHost: a\r\n\r\n")
	return func() error {
		r := bufio.NewReaderSize(conn, 2<<10)
		for line := ""; line != "\r\n"; {
			var err error
			if line, err = r.ReadString('\n'); err != nil {
				return err
			}
		}
		body := bufio.NewReader(httputil.NewChunkedReader(r))
		for last := 0; ; {
			line, err := body.ReadSlice('\n')
			if err == nil || errors.Is(err, bufio.ErrBufferFull) {
				last, err = note(line, last)
			}
			if err != nil {
				return err
			}
		}
	}, err
}

// openHTTP2 does the same with the streams of a connection. Its windows are larger than all that comes, as browsers have them.
func openHTTP2(conn net.Conn) (func() error, error) {
	if _, err := io.WriteString(conn, http2.ClientPreface); err != nil {
		return nil, err
	}
	const windowMax = 1<<31 - 1
	f := http2.NewFramer(conn, bufio.NewReaderSize(conn, 64<<10))
	f.SetReuseFrames()
	err := errors.Join(f.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: windowMax}), f.WriteWindowUpdate(0, windowMax-65535))
	var block bytes.Buffer
	encoder := hpack.NewEncoder(&block)
	for i := range *streams {
		block.Reset()
		for _, field := range [][2]string{{":method", "GET"}, {":scheme", "http"}, {":authority", "a"}, {":path", "/live/doc/stream"}} {
			_ = encoder.WriteField(hpack.HeaderField{Name: field[0], Value: field[1]})
		}
		err = errors.Join(err, f.WriteHeaders(http2.HeadersFrameParam{StreamID: uint32(2*i + 1), BlockFragment: block.Bytes(), EndStream: true, EndHeaders: true}))
	}
	return func() error { return readHTTP2(f) }, err
}

func readHTTP2(f *http2.Framer) error {
	last := make([]int, *streams)
	for {
		frame, err := f.ReadFrame()
		if err != nil {
			return err
		}
		switch frame := frame.(type) {
		case *http2.DataFrame:
			had := &last[frame.StreamID/2]
			*had, err = note(frame.Data(), *had)
		case *http2.SettingsFrame:
			if !frame.IsAck() {
				err = f.WriteSettingsAck()
			}
		case *http2.GoAwayFrame, *http2.RSTStreamFrame:
			err = fmt.Errorf("the node sends %v", frame)
		}
		if err != nil {
			return err
		}
	}
}

// replace writes document n.
func replace(file string, n int) error {
	head := fmt.Sprintf(`{"n":%d,"pad":"`, n)
	text := head + strings.Repeat("x", max(0, *size-len(head)-2)) + `"}`
	if err := os.WriteFile(file+".new", []byte(text), 0o600); err != nil {
		return err
	}
	return os.Rename(file+".new", file)
}

// await waits until count readers have document n.
func await(n, count int, failed <-chan error) error {
	for end := time.Now().Add(patience); arrived[n].Load() < int64(count); time.Sleep(time.Millisecond) {
		select {
		case err := <-failed:
			return err
		default:
		}
		if time.Now().After(end) {
			return fmt.Errorf("document %d has reached %d of %d readers", n, arrived[n].Load(), count)
		}
	}
	return nil
}

// usage returns the resident bytes of a process, and the processor time that it has used.
func usage(pid string) (resident int, cpu time.Duration, err error) {
	memory, err := os.ReadFile("/proc/" + pid + "/statm")
	if err != nil {
		return 0, 0, err
	}
	stat, err := os.ReadFile("/proc/" + pid + "/stat")
	if err != nil {
		return 0, 0, err
	}
	pages, _ := strconv.Atoi(strings.Fields(string(memory))[1])
	fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
	user, _ := strconv.Atoi(fields[11])
	system, _ := strconv.Atoi(fields[12])
	return pages * os.Getpagesize(), time.Duration(user+system) * 10 * time.Millisecond, nil
}

// join opens all connections, and returns where their failures go.
func join(addr string) (<-chan error, error) {
	failed := make(chan error, *connections)
	open := openHTTP2
	if *streams == 0 {
		open = openHTTP1
	}
	for i := range *connections {
		// From two addresses: a node gives each half of its connections for streams.
		dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, byte(1+i%2))}}
		conn, err := dialer.Dial("tcp", addr)
		if err != nil {
			return nil, err
		}
		read, err := open(conn)
		if err != nil {
			return nil, err
		}
		go func() { failed <- read() }()
	}
	return failed, nil
}

func run(addr, pid, file string) error {
	count := *connections * max(1, *streams)
	arrived = make([]atomic.Int64, *changes+2)
	if err := replace(file, 1); err != nil {
		return err
	}
	time.Sleep(time.Second) // the node loads it
	empty, idle, err := usage(pid)
	if err != nil {
		return err
	}
	failed, err := join(addr)
	if err == nil {
		err = await(1, count, failed)
	}
	if err != nil {
		return err
	}
	full, joined, _ := usage(pid)
	var took []time.Duration
	for n := 2; n < len(arrived); n++ {
		at := time.Now()
		if err := errors.Join(replace(file, n), await(n, count, failed)); err != nil {
			return err
		}
		took = append(took, time.Since(at))
		time.Sleep(time.Second - min(time.Second, took[len(took)-1]))
	}
	most, worked, _ := usage(pid)
	slices.Sort(took)
	fmt.Printf("| %d × %d | %.1f, then %.1f KB | %.0f µs | %v | %v | %.1f µs |\n", *connections, max(1, *streams),
		float64(full-empty)/float64(count)/1e3, float64(most-empty)/float64(count)/1e3, float64((joined-idle).Microseconds())/float64(count),
		took[len(took)/2].Round(time.Millisecond), took[len(took)-1].Round(time.Millisecond), float64((worked-joined).Microseconds())/float64(count**changes))
	return nil
}

func main() {
	flag.Parse()
	if flag.NArg() != 3 || *connections < 1 || *streams < 0 || *changes < 1 {
		log.Fatal("usage: streams [FLAGS] HOST:PORT PID FILE")
	}
	if err := run(flag.Arg(0), flag.Arg(1), flag.Arg(2)); err != nil {
		log.Fatal(err)
	}
}
