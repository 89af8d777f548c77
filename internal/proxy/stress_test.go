package proxy_test

import (
	"bufio"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/isotone/isotone/internal/check/await"
	"github.com/isotone/isotone/internal/proxy"
	"github.com/isotone/isotone/internal/proxy/balance"
)

var (
	stressSeed    = flag.Uint64("proxy.seed", 0, "seed of the stress test; 0: a new one")
	stressClients = flag.Int("proxy.clients", 60, "clients of the stress test")
)

// TestServer_EveryClientGetsItsAnswers has many clients that pipeline, cut and leave, and
// backends that answer in every framing, disconnect and stall. Every answer must be that to its
// request.
func TestServer_EveryClientGetsItsAnswers(t *testing.T) {
	t.Parallel()
	seed := *stressSeed
	if seed == 0 {
		seed = rand.Uint64()
	}
	defer func() {
		if t.Failed() {
			t.Logf("go test -run %s -args -proxy.seed=%d -proxy.clients=%d", t.Name(), seed, *stressClients)
		}
	}()
	var addrs []string
	for i := range 3 {
		var conns atomic.Uint64
		b := startScript(t, func(conn, request int, head string) (string, bool) {
			r := rand.New(rand.NewPCG(seed+uint64(i), conns.Add(1)))
			return misbehave(r, head)
		})
		addrs = append(addrs, b.addr)
	}
	s := start(t, proxy.Config{
		Strategy: balance.TwoChoices,
		Ejection: balance.EjectorConfig{FailuresMax: 1 << 30},
		Limits:   proxy.Limits{BackendConnectionsMax: 10, AnswerTimeout: 500 * time.Millisecond},
	}, addrs...)
	var clients sync.WaitGroup
	var answered atomic.Int64
	for i := range *stressClients {
		clients.Go(func() {
			r := rand.New(rand.NewPCG(seed, uint64(i)))
			for round := range 6 {
				if err := stressClient(r, s, fmt.Sprintf("c%d-%d", i, round), &answered); err != nil {
					t.Errorf("client %d, round %d: %v", i, round, err)
				}
			}
		})
	}
	clients.Wait()
	s.idle(t)
	await.Until(t, "no connection is left", func() bool { return s.Connections() == 0 })
	if answered.Load() < int64(*stressClients)*5 {
		t.Errorf("%d requests were answered by a backend", answered.Load())
	}
}

// misbehave answers most requests with their path and a body made of it.
func misbehave(r *rand.Rand, head string) (answer string, end bool) {
	path := strings.Fields(head)[1]
	body := strings.Repeat(path+";", 1+r.IntN(1<<r.IntN(10)))
	if strings.HasPrefix(head, "HEAD") {
		return fmt.Sprintf("HTTP/1.1 200 OK\r\nX-Path: %s\r\nContent-Length: %d\r\n\r\n", path, len(body)), false
	}
	answer = fmt.Sprintf("HTTP/1.1 200 OK\r\nX-Path: %s\r\nContent-Length: %d\r\n\r\n%s", path, len(body), body)
	switch r.IntN(12) {
	case 0, 1:
		answer = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nX-Path: " + path + "\r\n\r\n"
		for rest := body; rest != ""; {
			n := min(len(rest), 1+r.IntN(3000))
			answer += strconv.FormatInt(int64(n), 16) + "\r\n" + rest[:n] + "\r\n"
			rest = rest[n:]
		}
		return answer + "0\r\n\r\n", false
	case 2:
		return "HTTP/1.1 200 OK\r\nConnection: close\r\nX-Path: " + path + "\r\n\r\n" + body, true
	case 3:
		return "HTTP/1.1 100 Continue\r\n\r\n" + answer, false
	case 4:
		return answer, true // without Connection: close
	case 5:
		if r.IntN(4) == 0 {
			return answer[:r.IntN(len(answer))], true
		}
	case 6:
		if r.IntN(8) == 0 {
			return "", false // no answer
		}
	case 7:
		if r.IntN(4) == 0 {
			return answer + "HTTP/1.1 200 OK\r\nX-Path: poison\r\nContent-Length: 0\r\n\r\n", false
		}
	}
	return answer, false
}

// stressClient pipelines some requests on one connection and checks what comes back.
func stressClient(r *rand.Rand, s *site, name string, answered *atomic.Int64) error {
	nc, err := net.Dial("tcp", s.addr)
	if err != nil {
		return err
	}
	defer nc.Close()
	_ = nc.SetDeadline(time.Now().Add(patience))
	var raw string
	var methods []string
	n := 1 + r.IntN(20)
	for i := range n {
		method := []string{"GET", "GET", "GET", "HEAD", "DELETE"}[r.IntN(5)]
		methods = append(methods, method)
		raw += fmt.Sprintf("%s /%s-%d HTTP/1.1\r\nHost: x\r\n", method, name, i)
		if r.IntN(3) == 0 {
			raw += fmt.Sprintf("X-Pad: %s\r\n", strings.Repeat("p", r.IntN(200)))
		}
		raw += "\r\n"
	}
	said := make(chan struct{})
	pieces := rand.New(rand.NewPCG(r.Uint64(), 0))
	go func() {
		defer close(said)
		for len(raw) > 0 {
			k := min(len(raw), 1+pieces.IntN(1<<pieces.IntN(12)))
			if _, err := io.WriteString(nc, raw[:k]); err != nil {
				return
			}
			raw = raw[k:]
		}
	}()
	defer func() { nc.Close(); <-said }()
	leave := -1
	if r.IntN(4) == 0 {
		leave = r.IntN(n)
	}
	in := bufio.NewReader(nc)
	for i, method := range methods {
		if i == leave {
			return nil
		}
		resp, err := http.ReadResponse(in, &http.Request{Method: method})
		if err != nil {
			return nil // cut, as the answer before was, or one that had begun
		}
		body, err := io.ReadAll(resp.Body)
		path := fmt.Sprintf("/%s-%d", name, i)
		switch {
		case resp.StatusCode == 200 && resp.Header.Get("X-Path") != path:
			return fmt.Errorf("the answer to %s is that to %q", path, resp.Header.Get("X-Path"))
		case resp.StatusCode == 200 && strings.ReplaceAll(string(body), path+";", "") != "" && err == nil:
			return fmt.Errorf("the answer to %s has %.100q", path, body)
		case resp.StatusCode != 200 && resp.StatusCode != 502 && resp.StatusCode != 504 && resp.StatusCode != 503:
			return errors.New(resp.Status)
		case resp.StatusCode == 200 && err == nil:
			answered.Add(1)
		}
		if err != nil || resp.Close {
			return nil
		}
	}
	return nil
}
