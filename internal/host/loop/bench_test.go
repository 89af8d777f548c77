package loop_test

import (
	"io"
	"net"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/isotone/isotone/internal/host/loop"
)

// BenchmarkEcho answers 16 bytes with 16 bytes; each client waits for its answer before
// it asks again. The clients are half of the work.
func BenchmarkEcho(b *testing.B) {
	for _, count := range []int{1, 64} {
		b.Run(strconv.Itoa(count), func(b *testing.B) {
			l, err := loop.New(nil)
			if err != nil {
				b.Fatal(err)
			}
			ln := listen(b, "tcp", "127.0.0.1:0")
			handler := &funcs{data: echo}
			if err := l.Listen(ln, loop.Limits{}, func(*loop.Conn) loop.Handler { return handler }); err != nil {
				b.Fatal(err)
			}
			var stopped atomic.Bool
			ended := make(chan struct{})
			go func() {
				defer close(ended)
				for !stopped.Load() {
					if err := l.Wait(time.Second); err != nil {
						b.Error(err)
					}
					l.Flush()
				}
				if err := l.Close(); err != nil {
					b.Error(err)
				}
			}()
			defer func() { stopped.Store(true); l.Wake(); <-ended }()

			var clients sync.WaitGroup
			left := atomic.Int64{}
			left.Store(int64(b.N))
			begin := make(chan struct{})
			for range count {
				nc, err := net.Dial("tcp", ln.Addr().String())
				if err != nil {
					b.Fatal(err)
				}
				defer nc.Close()
				clients.Go(func() {
					buf := make([]byte, 16)
					<-begin
					for left.Add(-1) >= 0 {
						if _, err := nc.Write(buf); err != nil {
							b.Error(err)
							return
						}
						if _, err := io.ReadFull(nc, buf); err != nil {
							b.Error(err)
							return
						}
					}
				})
			}
			b.ReportAllocs()
			b.ResetTimer()
			close(begin)
			clients.Wait()
		})
	}
}
