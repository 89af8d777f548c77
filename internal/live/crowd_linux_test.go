package live_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httputil"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/isotone/isotone/internal/check/await"
	"github.com/isotone/isotone/internal/live"
)

// The crowd: thousands of streams over loopback, of which some are never read. The
// server is another process, this program again, so that its memory is its own.
const (
	crowdReaders = 4500
	crowdMute    = 500
	crowdRounds  = 10
	crowdBytes   = 32 << 10 // of a document
	// crowdSendBuffer is less than the client port has by default, so that the mute
	// are found out within the test.
	crowdSendBuffer   = 64 << 10
	crowdWriteTimeout = 3 * time.Second
	// crowdStreamMax bounds the memory of the server for a stream: goroutines,
	// buffers, and what the garbage collector lets lie.
	crowdStreamMax = 64 << 10
)

func init() { crowdServe = serveCrowd }

// crowdStats is what the server says of itself.
type crowdStats struct {
	Streams  int
	Cut      int64
	Resident uint64 // bytes
	Heap     uint64 // in use
	Stacks   uint64
}

// serveCrowd serves the file at path until its standard input ends.
func serveCrowd(path string) {
	sources, err := live.Parse("doc=file:" + path)
	if err != nil {
		panic(err)
	}
	var cut atomic.Int64
	s, err := live.New(live.Config{
		Sources: sources, Interval: live.IntervalMin, WriteTimeout: crowdWriteTimeout,
		Observe: live.Observer{Cut: func(string) { cut.Add(1) }},
	})
	if err != nil {
		panic(err)
	}
	mux := http.NewServeMux()
	mux.Handle("/live/", s.Handler())
	mux.HandleFunc("/stats", func(w http.ResponseWriter, _ *http.Request) {
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		_ = json.NewEncoder(w).Encode(crowdStats{s.Streams(), cut.Load(), resident(), m.HeapInuse, m.StackInuse})
	})
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	server := &http.Server{Handler: mux, ReadHeaderTimeout: patience}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = server.Serve(smallBuffers{ln, crowdSendBuffer})
	}()
	fmt.Println(ln.Addr())
	_, _ = io.Copy(io.Discard, os.Stdin)
	s.Close()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := server.Shutdown(ctx); err != nil || s.Streams() != 0 {
		fmt.Println("shutdown:", err, s.Streams())
	} else {
		fmt.Println("shut down")
	}
	<-ended
}

// resident returns the resident set of this process.
func resident() uint64 {
	text, _ := os.ReadFile("/proc/self/statm")
	fields := strings.Fields(string(text))
	if len(fields) < 2 {
		return 0
	}
	pages, _ := strconv.ParseUint(fields[1], 10, 64)
	return pages * uint64(os.Getpagesize())
}

// crowd is the clients.
type crowd struct {
	addr    string
	arrived [crowdRounds + 2]atomic.Int64 // readers that have document n
	failed  chan error
	conns   sync.Mutex
	open    []net.Conn
	readers sync.WaitGroup
}

// join opens streams, some at a time, and follows them if they are to be read.
func (c *crowd) join(count int, follow bool) {
	var dialing sync.WaitGroup
	turns := make(chan struct{}, 64)
	for range count {
		turns <- struct{}{}
		dialing.Go(func() {
			defer func() { <-turns }()
			conn, err := c.dial(!follow)
			if err != nil {
				c.fail(err)
				return
			}
			if follow {
				c.readers.Go(func() {
					if err := c.follow(conn); err != nil && !errors.Is(err, net.ErrClosed) {
						c.fail(err)
					}
				})
			}
		})
	}
	dialing.Wait()
}

func (c *crowd) fail(err error) {
	select {
	case c.failed <- err:
	default:
	}
}

func (c *crowd) dial(mute bool) (net.Conn, error) {
	conn, err := net.DialTimeout("tcp", c.addr, patience)
	if err != nil {
		return nil, err
	}
	if mute {
		_ = conn.(*net.TCPConn).SetReadBuffer(4 << 10)
	}
	c.conns.Lock()
	c.open = append(c.open, conn)
	c.conns.Unlock()
	_, err = io.WriteString(conn, "GET /live/doc/stream HTTP/1.1\r\nHost: a\r\n\r\n")
	return conn, err
}

// follow reads a stream and counts its documents, which must come without a gap.
func (c *crowd) follow(conn net.Conn) error {
	r := bufio.NewReaderSize(conn, 2<<10)
	for {
		line, err := r.ReadSlice('\n')
		if err != nil {
			return err
		}
		if len(line) == len("\r\n") {
			break
		}
	}
	body := bufio.NewReaderSize(httputil.NewChunkedReader(r), 1<<10)
	const start = `data: {"n":`
	for last := 0; ; {
		line, err := body.ReadSlice('\n')
		if bytes.HasPrefix(line, []byte(start)) {
			number, _, _ := bytes.Cut(line[len(start):], []byte(","))
			n, convErr := strconv.Atoi(string(number))
			if convErr != nil || last != 0 && n != last+1 {
				return fmt.Errorf("document %q after %d", number, last)
			}
			last = n
			for errors.Is(err, bufio.ErrBufferFull) {
				_, err = body.ReadSlice('\n')
			}
			if err == nil {
				c.arrived[n].Add(1)
			}
		}
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

func (c *crowd) stats(t *testing.T) (stats crowdStats) {
	t.Helper()
	answer, err := http.Get("http://" + c.addr + "/stats")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = answer.Body.Close() }()
	if err := json.NewDecoder(answer.Body).Decode(&stats); err != nil {
		t.Fatal(err)
	}
	return stats
}

// await waits until that many readers have document n.
func (c *crowd) await(t *testing.T, n, count int) {
	t.Helper()
	for end := time.Now().Add(2 * patience); c.arrived[n].Load() < int64(count); time.Sleep(time.Millisecond) {
		select {
		case err := <-c.failed:
			t.Fatalf("document %d: %v", n, err)
		default:
		}
		if time.Now().After(end) {
			t.Fatalf("document %d has reached %d of %d", n, c.arrived[n].Load(), count)
		}
	}
}

// crowdSize returns how many streams fit into the limit of open files, in proportion.
func crowdSize(t *testing.T) (readers, mute int) {
	t.Helper()
	readers, mute = crowdReaders, crowdMute
	if testing.Short() || raceEnabled {
		readers, mute = readers/10, mute/10
	}
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	// The Go runtime has raised the soft limit to the hard one.
	for uint64(readers+mute)+200 > limit.Max {
		readers, mute = readers/2, mute/2
		t.Logf("at most %d open files: %d readers, %d that never read", limit.Max, readers, mute)
	}
	return readers, mute
}

func crowdDocument(n int) string {
	return fmt.Sprintf(`{"n":%d,"pad":"%s"}`, n, strings.Repeat("x", crowdBytes))
}

func TestStream_HoldsACrowdOfWhichSomeNeverRead(t *testing.T) {
	t.Parallel()
	readers, mute := crowdSize(t)
	path := filepath.Join(t.TempDir(), "doc.json")
	write(t, path, crowdDocument(1))
	server := exec.Command(os.Args[0])
	server.Env = append(os.Environ(), crowdEnv+"="+path)
	server.Stderr = os.Stderr
	input, err := server.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	output, err := server.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = server.Process.Kill()
		_ = server.Wait()
	}()
	said := bufio.NewReader(output)
	addr, err := said.ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	c := &crowd{addr: strings.TrimSpace(addr), failed: make(chan error, 1)}
	defer func() {
		c.conns.Lock()
		for _, conn := range c.open {
			_ = conn.Close()
		}
		c.conns.Unlock()
		c.readers.Wait()
		http.DefaultClient.CloseIdleConnections()
	}()

	empty := c.stats(t)
	c.join(readers, true)
	c.join(mute, false)
	c.await(t, 1, readers)
	await.Until(t, "all streams", func() bool { return c.stats(t).Streams == readers+mute })
	full := c.stats(t)
	t.Logf("%d streams: resident %d MB, from %d MB (heap %d MB, stacks %d MB): %d bytes for each", full.Streams, full.Resident>>20,
		empty.Resident>>20, full.Heap>>20, full.Stacks>>20, (full.Resident-empty.Resident)/uint64(readers+mute))

	most := full.Resident
	for n := 2; n <= crowdRounds+1; n++ {
		began := time.Now()
		replace(t, path, crowdDocument(n))
		c.await(t, n, readers)
		took := time.Since(began)
		now := c.stats(t)
		most = max(most, now.Resident)
		t.Logf("change %d: all %d have it after %v; %d streams, %d cut, resident %d MB", n-1, readers, took.Round(time.Millisecond), now.Streams, now.Cut, now.Resident>>20)
		time.Sleep(time.Second - min(time.Second, took)) // the pace of a live document
	}
	await.Until(t, "those who never read to be cut", func() bool { s := c.stats(t); return s.Cut == int64(mute) && s.Streams == readers })
	if each := (most - empty.Resident) / uint64(readers+mute); each > crowdStreamMax && !raceEnabled {
		t.Errorf("%d bytes for each stream, want at most %d", each, crowdStreamMax)
	}
	_ = input.Close()
	if line, err := said.ReadString('\n'); line != "shut down\n" {
		t.Errorf("%q, %v", line, err)
	}
	if err := server.Wait(); err != nil {
		t.Error(err)
	}
}
