package live_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/isotone/isotone/internal/check/await"
	"github.com/isotone/isotone/internal/check/ports"
	"github.com/isotone/isotone/internal/live"
)

// redisServer is a real server, on a port of its own.
type redisServer struct {
	t    testing.TB
	path string
	args []string
	addr string
	cmd  *exec.Cmd
}

// startRedis starts a server, or skips the test.
func startRedis(t testing.TB, args ...string) *redisServer {
	t.Helper()
	path, err := exec.LookPath("redis-server")
	if err != nil {
		t.Skip("needs redis-server: install the package redis-server")
	}
	port, err := ports.Free(1)
	if err != nil {
		t.Fatal(err)
	}
	s := &redisServer{t: t, path: path, addr: fmt.Sprint("127.0.0.1:", port)}
	s.args = append([]string{"--port", fmt.Sprint(port), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no", "--dir", t.TempDir()}, args...)
	s.start()
	t.Cleanup(s.kill)
	return s
}

func (s *redisServer) start() {
	s.t.Helper()
	s.cmd = exec.Command(s.path, s.args...)
	if err := s.cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
	await.Until(s.t, "redis-server to listen", func() bool {
		c, err := net.Dial("tcp", s.addr)
		if err == nil {
			_ = c.Close()
		}
		return err == nil
	})
}

func (s *redisServer) kill() {
	if s.cmd != nil {
		_ = s.cmd.Process.Kill()
		_ = s.cmd.Wait()
		s.cmd = nil
	}
}

// with has a client of another make do something.
func (s *redisServer) with(o redis.Options, do func(ctx context.Context, c *redis.Client) error) {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	o.Addr = s.addr
	c := redis.NewClient(&o)
	defer func() { _ = c.Close() }()
	if err := do(ctx, c); err != nil {
		s.t.Fatal(err)
	}
}

func (s *redisServer) set(key, value string) {
	s.t.Helper()
	s.with(redis.Options{}, func(ctx context.Context, c *redis.Client) error { return c.Set(ctx, key, value, 0).Err() })
}

func TestRedis_IsFollowedThroughAKillAndARestart(t *testing.T) {
	t.Parallel()
	server := startRedis(t)
	var log lines
	var got codes
	s := open(t, live.Config{
		Sources: parse(t, "votes=redis://"+server.addr+"/0#the%20votes"), Log: log.logger(), Observe: live.Observer{Loaded: got.loaded},
	})
	await.Until(t, "the missing key to be noticed", func() bool { return got.count("votes not_found") > 1 })
	server.set("the votes", `{"n":1}`)
	reads(t, s, "votes", `{"n":1}`)
	server.set("the votes", `{"n":2}`)
	reads(t, s, "votes", `{"n":2}`)
	server.kill()
	await.Until(t, "the dead server to be noticed", func() bool { _, stale := s.Lookup("votes").Age(); return stale })
	await.Until(t, "its age to grow", func() bool { age, _ := s.Lookup("votes").Age(); return age >= 2*time.Second })
	if string(s.Lookup("votes").JSON()) != `{"n":2}` {
		t.Error("the last good document is not kept")
	}
	server.start()
	server.set("the votes", `{"n":3}`)
	reads(t, s, "votes", `{"n":3}`)
	if _, stale := s.Lookup("votes").Age(); stale {
		t.Error("stale after the restart")
	}
	// Missing, then dead, and after the restart perhaps missing again: that is not a
	// change, for it failed before.
	await.Until(t, "the log of the recovery", func() bool { return log.count("loaded again") >= 2 })
	if log.count("cannot be loaded") != 2 || log.count("loaded again") != 2 {
		t.Errorf("the log:\n%s", log.String())
	}
}

// TestRedis_RestartBetweenLoadsIsNotSeen has a connection that is dead when it is used
// again, before a server that is well.
func TestRedis_RestartBetweenLoadsIsNotSeen(t *testing.T) {
	t.Parallel()
	server := startRedis(t)
	server.set("k", "1")
	var got codes
	s := open(t, live.Config{
		Sources: parse(t, "doc=redis://"+server.addr+"#k"), Interval: 2 * time.Second, Observe: live.Observer{Loaded: got.loaded},
	})
	reads(t, s, "doc", "1")
	server.with(redis.Options{}, func(ctx context.Context, c *redis.Client) error {
		return c.ClientKillByFilter(ctx, "TYPE", "normal", "SKIPME", "yes").Err()
	})
	server.set("k", "2")
	reads(t, s, "doc", "2")
	if all := got.all(); strings.Trim(all, "0123456789") != "map[doc ok: doc unchanged:]" && all != "map[doc ok:2]" {
		t.Errorf("loads: %s", all)
	}
}

func TestRedis_PasswordDatabaseAndLimits(t *testing.T) {
	t.Parallel()
	server := startRedis(t)
	server.with(redis.Options{}, func(ctx context.Context, c *redis.Client) error {
		if err := c.Do(ctx, "ACL", "SETUSER", "reader", "on", ">secret", "~k*", "+strlen", "+getrange", "+select").Err(); err != nil {
			return err
		}
		return c.ConfigSet(ctx, "requirepass", "p w,d").Err()
	})
	server.with(redis.Options{Password: "p w,d", DB: 3}, func(ctx context.Context, c *redis.Client) error {
		return c.MSet(ctx, "k", "[1]", "k-large", strings.Repeat("1", 1001), "other", "1").Err()
	})
	server.with(redis.Options{Password: "p w,d", DB: 3}, func(ctx context.Context, c *redis.Client) error {
		return c.LPush(ctx, "k-list", "1").Err()
	})
	var log lines
	var got codes
	host := server.addr + "/3#"
	s := open(t, live.Config{SizeMax: 1000, Log: log.logger(), Observe: live.Observer{Loaded: got.loaded}, Sources: parse(t, strings.Join([]string{
		"default=redis://:p%20w%2Cd@" + host + "k",
		"reader=redis://reader:secret@" + host + "k",
		"large=redis://reader:secret@" + host + "k-large",
		"list=redis://reader:secret@" + host + "k-list",
		"denied=redis://reader:secret@" + host + "other",
		"wrong=redis://reader:wrong@" + host + "k",
		"none=redis://" + host + "k",
		"tls=rediss://" + host + "k",
	}, ","))})
	reads(t, s, "default", "[1]")
	reads(t, s, "reader", "[1]")
	for _, want := range []string{
		"large invalid_argument", "list invalid_argument", "denied forbidden", "wrong unauthorized", "none unauthorized",
	} {
		await.Until(t, want, func() bool { return got.count(want) > 1 })
	}
	await.Until(t, "TLS to fail", func() bool { return log.count("document=tls") == 1 })
	if log.count("secret") != 0 || log.count("p w") != 0 || log.count("p%20w") != 0 || s.Lookup("tls") != nil {
		t.Errorf("the log:\n%s", log.String())
	}
}

func TestRedis_HangingServerCostsATimeout(t *testing.T) {
	for name, says := range map[string]string{"silent": "", "half a reply": ":5\r\n$5\r\n12"} {
		t.Run(name, func(t *testing.T) {
			addr, connections := hang(t, says)
			var got codes
			s := open(t, live.Config{
				Sources: parse(t, "doc=redis://"+addr+"#k"), Timeout: 50 * time.Millisecond, Observe: live.Observer{Loaded: got.loaded},
			})
			await.Until(t, "three timeouts", func() bool { return got.count("doc deadline_exceeded") >= 3 })
			s.Close()
			// A connection with half a reply is never used again.
			if connections.Load() < 3 {
				t.Errorf("%d connections", connections.Load())
			}
		})
	}
}

// TestRedis_DoesNotBelieveALength has a server that first says how much it has, and one
// that lies.
func TestRedis_DoesNotBelieveALength(t *testing.T) {
	for says, want := range map[string]string{
		":1073741824\r\n":             "invalid_argument",
		":5\r\n$1073741824\r\n{":      "internal",
		":5\r\n$-1\r\n":               "internal",
		":5\r\n$9000000000000000\r\n": "internal",
		"HTTP/1.1 400 Bad Request\r\n\r\n" + strings.Repeat("x", 8192): "internal",
		"-LOADING dataset\r\n": "overloaded",
	} {
		addr, _ := hang(t, says)
		var got codes
		before := allocated()
		s := open(t, live.Config{Sources: parse(t, "doc=redis://"+addr+"#k"), Interval: time.Hour, Observe: live.Observer{Loaded: got.loaded}})
		await.Until(t, fmt.Sprintf("%.30q to be %s", says, want), func() bool { return got.count("doc "+want) == 1 })
		if used := allocated() - before; used > 16<<20 {
			t.Errorf("%.30q: %d MiB were allocated", says, used>>20)
		}
		s.Close()
	}
}

// TestRedis_WritesWhatRedisReads has the bytes of a load.
func TestRedis_WritesWhatRedisReads(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var read bytes.Buffer
	var served sync.WaitGroup
	served.Go(func() {
		c, err := ln.Accept()
		if err != nil {
			return
		}
		_, _ = io.WriteString(c, "+OK\r\n+OK\r\n:2\r\n$2\r\n{}\r\n")
		_, _ = io.Copy(&read, c)
		_ = c.Close()
	})
	s := open(t, live.Config{Sources: parse(t, "doc=redis://u:p@"+ln.Addr().String()+"/2#k%C3%A4"), Interval: time.Hour, SizeMax: 50})
	reads(t, s, "doc", "{}")
	s.Close()
	_ = ln.Close()
	served.Wait()
	want := "*3\r\n$4\r\nAUTH\r\n$1\r\nu\r\n$1\r\np\r\n*2\r\n$6\r\nSELECT\r\n$1\r\n2\r\n" +
		"*2\r\n$6\r\nSTRLEN\r\n$3\r\nkä\r\n*4\r\n$8\r\nGETRANGE\r\n$3\r\nkä\r\n$1\r\n0\r\n$2\r\n50\r\n"
	if read.String() != want {
		t.Errorf("%q, want %q", read.String(), want)
	}
}
