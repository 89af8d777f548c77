//go:build linux

package service_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/isotone/isotone/internal/check/await"
	"github.com/isotone/isotone/internal/check/chaos"
	"github.com/isotone/isotone/internal/check/ports"
)

// redisServer is a real Redis server that tests break.
type redisServer struct {
	t      *testing.T
	port   int
	dir    string
	path   string
	p      *chaos.Process
	client *redis.Client
}

// startRedis starts a server on a port of its own. It skips the test if Redis is not installed.
func startRedis(t *testing.T) *redisServer {
	t.Helper()
	path, err := exec.LookPath("redis-server")
	if err != nil {
		t.Skip("needs redis-server")
	}
	port, err := ports.Free(1)
	if err != nil {
		t.Fatal(err)
	}
	s := &redisServer{t: t, port: port, dir: t.TempDir(), path: path}
	s.client = redis.NewClient(&redis.Options{Addr: fmt.Sprintf("127.0.0.1:%d", port), MaxRetries: -1, DialTimeout: time.Second})
	t.Cleanup(func() {
		_ = s.client.Close()
		if !s.p.Exited() {
			s.kill()
		}
	})
	s.start()
	return s
}

func (s *redisServer) start() {
	s.t.Helper()
	var err error
	s.p, err = chaos.Run("redis-server", filepath.Join(s.dir, "log"), []string{"PATH=" + os.Getenv("PATH")},
		[]string{s.path, "--port", fmt.Sprint(s.port), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no", "--dir", s.dir})
	if err != nil {
		s.t.Fatal(err)
	}
	await.Done(s.t, liveTimeout, func() (bool, string) {
		err := s.client.Ping(context.Background()).Err()
		return err == nil, fmt.Sprintf("redis-server does not answer: %v; %s", err, s.p.Log())
	})
}

// kill ends the server, which loses its data.
func (s *redisServer) kill() {
	s.t.Helper()
	if err := s.p.Kill(); err != nil {
		s.t.Error(err)
	}
	if _, err := s.p.WaitExit(chaos.ExitTimeout); err != nil {
		s.t.Error(err)
	}
}

func (s *redisServer) do(args ...any) {
	s.t.Helper()
	if err := s.client.Do(context.Background(), args...).Err(); err != nil {
		s.t.Fatal(err)
	}
}

// TestLive_OutlivesItsRedis breaks the server of a document, and the document in it. Documents
// from other sources stay fresh.
func TestLive_OutlivesItsRedis(t *testing.T) {
	t.Parallel() // it waits most of the time
	s := startRedis(t)
	s.do("SET", "live:votes", `"first"`)
	scores := filepath.Join(t.TempDir(), "scores.json")
	put(t, scores, []byte("1"))
	n := documents(t, map[string]string{"votes": fmt.Sprintf("redis://127.0.0.1:%d#live%%3Avotes", s.port), "scores": "file:" + scores})
	wantDocument(t, n, "votes", `"first"`, false)
	memory := watchMemory(t, n)

	if err := s.p.Stop(); err != nil {
		t.Fatal(err)
	}
	wantDocument(t, n, "votes", `"first"`, true)
	put(t, scores, []byte("2"))
	wantDocument(t, n, "scores", "2", false)
	if err := s.p.Cont(); err != nil {
		t.Fatal(err)
	}
	wantDocument(t, n, "votes", `"first"`, false)
	wantLines(t, n, "votes", 1, 1)

	s.kill()
	wantDocument(t, n, "votes", `"first"`, true)
	s.start()
	s.do("SET", "live:votes", `"second"`)
	wantDocument(t, n, "votes", `"second"`, false)
	wantLines(t, n, "votes", 2, 2)

	s.do("SET", "live:votes", "["+strings.Repeat(" ", 64<<20)+"]")
	wantDocument(t, n, "votes", `"second"`, true)
	s.do("DEL", "live:votes")
	s.do("LPUSH", "live:votes", "a list")
	s.do("DEL", "live:votes")
	s.do("SET", "live:votes", `"third"`)
	wantDocument(t, n, "votes", `"third"`, false)
	wantLines(t, n, "votes", 3, 3)
	wantLines(t, n, "scores", 0, 0)
	memory.want(t)
}

// TestLive_OutlivesItsServer has the server of a document hang, fail, and send without end.
func TestLive_OutlivesItsServer(t *testing.T) {
	t.Parallel() // it waits most of the time
	var answer atomic.Pointer[http.HandlerFunc]
	serve := func(f http.HandlerFunc) { answer.Store(&f) }
	say := func(text string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(text)) }
	}
	serve(say("[0]"))
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { (*answer.Load())(w, r) }))
	defer server.Close()
	n := documents(t, map[string]string{"feed": server.URL + "/feed"})
	wantDocument(t, n, "feed", "[0]", false)
	memory := watchMemory(t, n)
	faults := []struct {
		name  string
		serve http.HandlerFunc
	}{
		{"hangs", func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }},
		{"hangs in the midst", func(w http.ResponseWriter, r *http.Request) {
			_, _ = w.Write([]byte("["))
			_ = http.NewResponseController(w).Flush()
			<-r.Context().Done()
		}},
		{"fails", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(500) }},
		{"never ends", func(w http.ResponseWriter, _ *http.Request) {
			for spaces := make([]byte, 1<<20); ; {
				if _, err := w.Write(spaces); err != nil {
					return
				}
			}
		}},
		{"announces 1 GB", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", fmt.Sprint(1<<30))
			_, _ = w.Write([]byte("["))
		}},
	}
	for i, fault := range faults {
		before, after := fmt.Sprintf("[%d]", i), fmt.Sprintf("[%d]", i+1)
		serve(fault.serve)
		wantDocument(t, n, "feed", before, true)
		serve(say(after))
		wantDocument(t, n, "feed", after, false)
		wantLines(t, n, "feed", i+1, i+1)
	}
	memory.want(t)
}
