package main

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/isotone/isotone/internal/check/await"
	"github.com/isotone/isotone/internal/check/demolive"
)

// liveRedis is what a demo and its node need of Redis: strings in databases.
type liveRedis struct {
	url string

	mu     sync.Mutex
	values map[string]string // by database and key
	writes int
}

func startLiveRedis(t *testing.T) *liveRedis {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r := &liveRedis{url: "redis://:secret@" + ln.Addr().String() + "/2#votes", values: map[string]string{}}
	var ended sync.WaitGroup
	ended.Go(func() {
		for {
			conn, err := ln.Accept()
			if err != nil {
				return
			}
			ended.Go(func() { r.serve(conn) })
		}
	})
	t.Cleanup(func() {
		_ = ln.Close()
		ended.Wait() // the clients are gone by then
	})
	return r
}

// serve answers the commands of a connection.
func (r *liveRedis) serve(conn net.Conn) {
	defer conn.Close()
	in, db := bufio.NewReader(conn), "0"
	number := func() int {
		line, _ := in.ReadString('\n')
		n, _ := strconv.Atoi(strings.Trim(line, "*$\r\n"))
		return n
	}
	for {
		args := make([]string, number())
		if len(args) == 0 {
			return
		}
		for i := range args {
			arg := make([]byte, number()+2)
			if _, err := io.ReadFull(in, arg); err != nil {
				return
			}
			args[i] = string(arg[:len(arg)-2])
		}
		if _, err := io.WriteString(conn, r.answer(&db, args)); err != nil {
			return
		}
	}
}

func (r *liveRedis) answer(db *string, args []string) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	if args[0] == "AUTH" || args[0] == "SELECT" {
		if args[0] == "SELECT" {
			*db = args[1]
		} else if args[1] != "secret" {
			return "-WRONGPASS wrong\r\n"
		}
		return "+OK\r\n"
	}
	key := *db + "/" + args[1]
	value, exists := r.values[key]
	switch args[0] {
	case "SET":
		if exists && args[len(args)-1] == "NX" {
			return "$-1\r\n"
		}
		r.values[key] = args[2]
		r.writes++
		return "+OK\r\n"
	case "DEL":
		delete(r.values, key)
		return ":1\r\n"
	case "STRLEN":
		return ":" + strconv.Itoa(len(value)) + "\r\n"
	case "GETRANGE":
		return "$" + strconv.Itoa(len(value)) + "\r\n" + value + "\r\n"
	}
	return "-ERR unknown command\r\n"
}

// TestDemoLive_ChecksEveryEvent runs a node and a few readers, with a file and with Redis.
func TestDemoLive_ChecksEveryEvent(t *testing.T) {
	redis := startLiveRedis(t)
	for _, source := range []string{"file", "redis"} {
		t.Run(source, func(t *testing.T) {
			t.Parallel()
			tmp := t.TempDir()
			args := []string{"demo", "live", "--readers", "7", "--duration", "2s", "--json", "--svg", "picture.svg"}
			if source == "redis" {
				args = append(args, "--redis", redis.url)
			}
			cmd := reexec(t, []string{"TMPDIR=" + tmp, "LIVE_INTERVAL_MS=9999"}, args...)
			var out, errs bytes.Buffer
			cmd.Stdout, cmd.Stderr = &out, &errs
			if err := cmd.Run(); err != nil {
				t.Fatalf("%v\n%s%s", err, out.String(), errs.String())
			}
			var r demolive.Result
			if err := json.Unmarshal(out.Bytes(), &r); err != nil {
				t.Fatalf("%v\n%s", err, out.String())
			}
			phases := r.Result.Phases
			if r.Schema != demolive.Schema || !r.Verdict.OK || r.Settings.Source != source || len(phases) != 2 || phases[0].TLS || !phases[1].TLS {
				t.Fatalf("%+v", r)
			}
			for _, p := range phases {
				if p.Readers != 7 || p.Documents != 1 || p.Events != 7 || p.Missed != 0 || p.Loads == 0 || p.LastMS < p.FirstMS || p.FirstMS <= 0 {
					t.Errorf("%+v", p)
				}
			}
			if r.Verdict.Checked != 28 || len(r.Result.Seconds) != 2 || !strings.Contains(errs.String(), "verdict    ok") || strings.Contains(errs.String(), "\x1b") {
				t.Errorf("%+v\n%s", r.Verdict, errs.String())
			}
			if svg, err := os.ReadFile(filepath.Join(cmd.Dir, "picture.svg")); err != nil || string(svg) != r.Picture() {
				t.Errorf("the picture: %v, %d bytes", err, len(svg))
			}
			wantEmpty(t, tmp)
			if source == "redis" {
				redis.mu.Lock()
				defer redis.mu.Unlock()
				if len(redis.values) != 0 || redis.writes != 3 {
					t.Errorf("%d writes to Redis; left there: %v", redis.writes, redis.values)
				}
			}
		})
	}
}

func TestDemoLive_KeepsAKeyOfRedisThatExists(t *testing.T) {
	redis := startLiveRedis(t)
	redis.values["2/votes"] = "mine"
	code, _, errs := command("demo", "live", "--redis", redis.url)
	if code != exitUsage || !strings.Contains(errs, `the key "votes" exists`) || redis.values["2/votes"] != "mine" {
		t.Errorf("exit code %d, %s; %v", code, errs, redis.values)
	}
	code, _, errs = command("demo", "live", "--redis", strings.Replace(redis.url, "secret", "false", 1))
	if code != 1 || !strings.Contains(errs, "--redis: AUTH: WRONGPASS") || strings.Contains(errs, "false") {
		t.Errorf("exit code %d, %s", code, errs)
	}
}

// started is what a demo has printed once it has a page.
var started = regexp.MustCompile(`See them at (https://\S+)`)

// TestDemoLive_LeavesNothingHoweverItEnds also reads the page, and checks that it may read the stream.
func TestDemoLive_LeavesNothingHoweverItEnds(t *testing.T) {
	for name, signal := range map[string]syscall.Signal{"interrupted": syscall.SIGINT, "killed": syscall.SIGKILL} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tmp := t.TempDir()
			cmd := reexec(t, []string{"TMPDIR=" + tmp}, "demo", "live", "--readers", "3", "--duration", "5m")
			out, err := os.Create(filepath.Join(t.TempDir(), "output"))
			if err != nil {
				t.Fatal(err)
			}
			defer out.Close()
			cmd.Stdout, cmd.Stderr = out, out
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			var shown []byte
			await.Until(t, "there were events", func() bool {
				shown, _ = os.ReadFile(out.Name())
				return bytes.Contains(shown, []byte(" 3 events "))
			})
			nodes := childrenOf(t, cmd.Process.Pid)
			wantPage(t, strings.TrimSuffix(string(started.FindSubmatch(shown)[1]), "/"))
			if err := cmd.Process.Signal(signal); err != nil {
				t.Fatal(err)
			}
			err = cmd.Wait()
			wantEnded(t, nodes)
			if signal == syscall.SIGINT {
				wantEmpty(t, tmp)
				shown, _ = os.ReadFile(out.Name())
				if text := string(shown); err != nil || !strings.Contains(text, "verdict    ok") || !strings.Contains(text, "Interrupted before its end.") {
					t.Errorf("%v\n%s", err, text)
				}
			}
		})
	}
}

// wantPage fails unless there is a page at an origin, and the node in it lets that origin read.
func wantPage(t *testing.T, origin string) {
	t.Helper()
	transport := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}
	defer transport.CloseIdleConnections()
	get := func(url string) (*http.Response, string) {
		request, err := http.NewRequest(http.MethodGet, url, nil)
		if err != nil {
			t.Fatal(err)
		}
		request.Header.Set("Origin", origin)
		answer, err := transport.RoundTrip(request)
		if err != nil {
			t.Fatal(err)
		}
		defer answer.Body.Close()
		body, err := io.ReadAll(answer.Body)
		if err != nil || answer.StatusCode != http.StatusOK {
			t.Errorf("%s: %s, %v", url, answer.Status, err)
		}
		return answer, string(body)
	}
	_, page := get(origin + "/")
	node := regexp.MustCompile(`const node = "([^"]*)"`).FindStringSubmatch(page)
	if node == nil {
		t.Fatalf("no node in the page:\n%s", page)
	}
	answer, body := get(strings.ReplaceAll(node[1], `\/`, "/") + "/live/votes")
	if answer.Header.Get("Access-Control-Allow-Origin") != origin || !strings.HasPrefix(body, `{"version":`) {
		t.Errorf("%v, %.60s", answer.Header, body)
	}
}

func TestDemoLive_SaysWhatIsWrongWithItsFlags(t *testing.T) {
	code, _, errs := command("demo", "live", "--readers", "10000", "--duration", "1s", "--tls", "maybe", "--redis", "redis://h")
	for _, want := range []string{"--readers 10000: want 1 to 9980", "--duration 1s: want 2s to 10m0s", `--tls "maybe": want both, on or off`, "--redis: want redis://"} {
		if code != exitUsage || !strings.Contains(errs, want) {
			t.Errorf("exit code %d, %q; want %q", code, errs, want)
		}
	}
}
