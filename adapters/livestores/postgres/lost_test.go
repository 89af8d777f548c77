package postgres_test

import (
	"bytes"
	"errors"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/isotone/isotone"

	"github.com/isotone/isotone/adapters/livestores/internal/loadtest"
)

// startCutter relays connections to a server. When told, it ends the next one that the loader wants to leave its
// transaction on: the document has arrived by then.
func startCutter(t *testing.T, server string) (addr string, cut *atomic.Bool) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	cut = new(atomic.Bool)
	var served sync.WaitGroup
	served.Go(func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			to, err := net.Dial("tcp", server)
			if err != nil {
				_ = c.Close()
				continue
			}
			served.Go(func() { _, _ = io.Copy(c, to); _ = c.Close() })
			served.Go(func() {
				defer to.Close()
				b := make([]byte, 64<<10)
				for {
					n, err := c.Read(b)
					if err != nil || bytes.Contains(b[:n], []byte("ROLLBACK")) && cut.CompareAndSwap(true, false) {
						return
					}
					_, _ = to.Write(b[:n])
				}
			})
		}
	})
	t.Cleanup(func() { _ = ln.Close(); served.Wait() })
	return ln.Addr().String(), cut
}

// TestPostgres_ADocumentOfALoadThatFailedIsNew: the connection ends after the document has arrived, and before
// the transaction has ended.
func TestPostgres_ADocumentOfALoadThatFailedIsNew(t *testing.T) {
	s := startPostgres(t)
	s.run("CREATE TABLE live (doc jsonb)", "INSERT INTO live VALUES ('1')", "CREATE ROLE app LOGIN PASSWORD 'p'", "GRANT SELECT ON live TO app")
	addr, cut := startCutter(t, s.addr)
	l := open(t, "postgres://app:p@"+addr+"/postgres?sslmode=disable#SELECT doc FROM live")
	cut.Store(true)
	if _, _, err := loadtest.Load(t, l, time.Minute); !errors.Is(err, isotone.ErrInternal) {
		t.Fatalf("the first load: %v", err)
	}
	loadtest.Wants(t, l, "1", nil)
	s.run("UPDATE live SET doc='2'")
	cut.Store(true)
	loadtest.Wants(t, l, "2", nil) // the second try of this load
	loadtest.Wants(t, l, "", nil)
}
