package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/isotone/isotone/internal/check/await"
	"github.com/isotone/isotone/internal/check/rig"
)

// TestProxy_HasNoMoreConnectionsThanFiles: real proxies of both kinds whose limit of open files is
// below --max-connections answer 503 beyond what they have files for, and never lack one.
func TestProxy_HasNoMoreConnectionsThanFiles(t *testing.T) {
	if testing.Short() {
		t.Skip("starts processes")
	}
	const files = 100
	held := make(chan struct{})
	backend := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-held }))
	defer backend.Close()
	defer close(held)
	for _, c := range []struct {
		to          []string
		connections int
		path        string
	}{
		{[]string{"--backend", backend.URL}, 37, "/"}, // half of three quarters: each request holds a second file
		{[]string{"--node", closedAddr(t)}, 75, "/up"},
	} {
		var log syncBuffer
		cmd := reexec(t, nil, append([]string{"proxy", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"}, c.to...)...)
		cmd.Args = append([]string{"sh", "-c", fmt.Sprintf(`ulimit -n %d && exec "$0" "$@"`, files), cmd.Path}, cmd.Args[1:]...)
		cmd.Path, cmd.Stdout, cmd.Stderr = "/bin/sh", &log, &log
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		var line struct{ Listen string }
		await.Done(t, await.Timeout, func() (bool, string) {
			for text := range strings.Lines(log.String()) {
				if strings.Contains(text, `"msg":"forwarding"`) && strings.HasSuffix(text, "\n") {
					_ = json.Unmarshal([]byte(text), &line)
				}
			}
			return line.Listen != "", log.String()
		})
		if want := fmt.Sprintf(`"max_connections":20000,"connections":%d,"RLIMIT_NOFILE":%d`, c.connections, files); !strings.Contains(log.String(), want) {
			t.Errorf("%v: without %s: %s", c.to, want, log.String())
		}
		var open []net.Conn
		for range c.connections {
			conn := rig.Dial(t, line.Listen, nil)
			_, _ = io.WriteString(conn, "GET "+c.path+" HTTP/1.1\r\nHost: x\r\n\r\n")
			open = append(open, conn)
		}
		await.Done(t, await.Timeout, func() (bool, string) {
			conn, err := net.DialTimeout("tcp", line.Listen, time.Second)
			if err != nil {
				return false, err.Error()
			}
			defer conn.Close()
			_ = conn.SetDeadline(time.Now().Add(time.Second))
			_, _ = io.WriteString(conn, "GET "+c.path+" HTTP/1.1\r\nHost: x\r\n\r\n")
			head := make([]byte, len("HTTP/1.1 503"))
			_, err = io.ReadFull(conn, head)
			return string(head) == "HTTP/1.1 503", fmt.Sprintf("%v: one more gets %q, %v", c.to, head, err)
		})
		closeIdle(open)
		_ = cmd.Process.Signal(syscall.SIGTERM)
		_ = cmd.Wait()
		for _, words := range []string{"cannot be accepted", "too many open files"} {
			if strings.Contains(log.String(), words) {
				t.Errorf("%v: %s", c.to, log.String())
			}
		}
	}
}
