//go:build linux

package service_test

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/quic-go/quic-go/http3"

	"github.com/isotone/isotone/internal/check/await"
	"github.com/isotone/isotone/internal/check/chaos"
	"github.com/isotone/isotone/internal/check/trial"
)

const (
	// liveInterval is LIVE_INTERVAL_MS of these tests. A load may take a second.
	liveInterval = 200 * time.Millisecond
	// liveTimeout bounds waits for a change, or a failure, to be seen.
	liveTimeout = time.Minute
	// liveGrowthMax bounds the memory that sources of any size may cost: several copies of
	// the largest allowed document, 8 MiB, that are read, kept, or garbage.
	liveGrowthMax = 128 << 20
)

// httpClients returns clients of one node in every version of HTTP.
func httpClients(t *testing.T, n *chaos.Node) map[string]httpClient {
	t.Helper()
	trustAll := &tls.Config{InsecureSkipVerify: true} // the certificate is self-signed
	h3 := &http3.Transport{TLSClientConfig: trustAll, DisableCompression: true}
	t.Cleanup(func() { _ = h3.Close() })
	list := map[string]httpClient{"h3": {"https://" + n.HTTPAddr, "HTTP/3.0", &http.Client{Transport: h3, Timeout: trial.AnswerTimeout}}}
	for name, v := range map[string]struct {
		scheme, proto string
		transport     *http.Transport
	}{
		"plain": {"http://", "HTTP/1.1", transport(nil, (*http.Protocols).SetHTTP1)},
		"h2c":   {"http://", "HTTP/2.0", transport(nil, (*http.Protocols).SetUnencryptedHTTP2)},
		"tls":   {"https://", "HTTP/1.1", transport(trustAll, (*http.Protocols).SetHTTP1)},
		"h2":    {"https://", "HTTP/2.0", transport(trustAll, (*http.Protocols).SetHTTP2)},
	} {
		v.transport.DisableCompression = true // tests look at what is sent
		t.Cleanup(v.transport.CloseIdleConnections)
		list[name] = httpClient{v.scheme + n.HTTPAddr, v.proto, &http.Client{Transport: v.transport, Timeout: trial.AnswerTimeout}}
	}
	return list
}

type httpClient struct {
	base, proto string
	client      *http.Client
}

// documents starts one node with live documents, and a document of each kind.
func documents(t *testing.T, sources map[string]string) *chaos.Node {
	t.Helper()
	var list []string
	for name, source := range sources {
		list = append(list, name+"="+source)
	}
	o := trial.Options()
	o.Nodes, o.Env = 1, map[string]string{"LIVE": strings.Join(list, ","), "LIVE_INTERVAL_MS": fmt.Sprint(liveInterval.Milliseconds()), "LOOPS": "2"}
	return chaos.StartCluster(t, o).Node(1)
}

// put replaces a file atomically.
func put(t *testing.T, path string, content []byte) {
	t.Helper()
	err := os.WriteFile(path+".new", content, 0o600)
	if err = errors.Join(err, os.Rename(path+".new", path)); err != nil {
		t.Fatal(err)
	}
}

// wantDocument waits until a document has the expected content, and is fresh or stale.
func wantDocument(t *testing.T, n *chaos.Node, name, want string, stale bool) {
	t.Helper()
	await.Done(t, liveTimeout, func() (bool, string) {
		a := trial.Get(t, n, "/live/"+name)
		aged := a.Header.Get("Age") != ""
		return a.Status == 200 && string(a.Body) == want && aged == stale, fmt.Sprintf("%s: %d %v %.100q; want %.100q, stale: %v", name, a.Status, a.Header, a.Body, want, stale)
	})
}

// TestLive_IsTheSameByEveryProtocol requests small and large documents in each version of
// HTTP, whole, compressed, by tag and by HEAD. HTTP/1.1 uses the fast path, with TLS and
// without; the standard servers answer the rest.
func TestLive_IsTheSameByEveryProtocol(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	small, large := filepath.Join(dir, "scores.json"), filepath.Join(dir, "large.json")
	put(t, small, []byte(`{"goals": [`+strings.Repeat(`{"minute": 1, "by": "é"}, `, 40)+`null]}`))
	put(t, large, []byte(`{"all": [`+strings.Repeat(`"a line that is long enough", `, 20_000)+`null]}`)) // beyond the fast path
	n := documents(t, map[string]string{"scores": "file:" + small, "large": "file:" + large, "late": "file:" + filepath.Join(dir, "late.json")})
	if a := trial.Get(t, n, "/live/late"); a.Status != 503 || a.Code() != "overloaded" || a.Header.Get("Retry-After") != "1" {
		t.Errorf("a document that was never loaded: %d %v %s", a.Status, a.Header, a.Body)
	}
	all := httpClients(t, n)
	for name, file := range map[string]string{"scores": small, "large": large} {
		content, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		wantDocument(t, n, name, string(content), false)
		tags := map[string]bool{}
		for _, encoding := range []string{"", "gzip"} {
			var first *chaos.Answer
			for by, v := range all {
				a := wantForms(t, by, v, "/live/"+name, encoding, content)
				if first == nil {
					first = a
				}
				for _, field := range []string{"Etag", "Content-Type", "Cache-Control", "Vary", "Content-Encoding", "Age"} {
					if a.Header.Get(field) != first.Header.Get(field) {
						t.Errorf("%s by %s: %s is %q, by another %q", name, by, field, a.Header.Get(field), first.Header.Get(field))
					}
				}
				tags[a.Header.Get("Etag")] = true
			}
		}
		if len(tags) != 2 {
			t.Errorf("%s has the tags %v, want one for each encoding", name, tags)
		}
	}
	for by, v := range all {
		for _, path := range []string{"/live/none", "/live/", "/live", "/live/scores/", "/live/Scores", "/live/scores/none", "/live/scores/stream/", "/live/../live/none"} {
			if a := askBy(t, v.client, http.MethodGet, v.base+path, nil); a.Status != 404 || a.Code() != "not_found" {
				t.Errorf("%s by %s: %d %.200s", path, by, a.Status, a.Body)
			}
		}
		if a := askBy(t, v.client, http.MethodPost, v.base+"/live/scores", nil); a.Status != 405 || a.Code() != "invalid_argument" {
			t.Errorf("POST by %s: %d %s", by, a.Status, a.Body)
		}
	}
	put(t, filepath.Join(dir, "late.json"), []byte("[]"))
	wantDocument(t, n, "late", "[]", false)
}

// wantForms requests a document in one encoding in every way, and returns the whole answer.
func wantForms(t *testing.T, by string, v httpClient, path, encoding string, content []byte) *chaos.Answer {
	t.Helper()
	header := http.Header{"Accept-Encoding": {encoding}}
	if encoding == "" {
		header = http.Header{}
	}
	a := askBy(t, v.client, http.MethodGet, v.base+path, header)
	body := a.Body
	if encoding == "gzip" {
		zipped, err := gzip.NewReader(bytes.NewReader(a.Body))
		if err == nil {
			body, err = io.ReadAll(zipped)
		}
		if err != nil {
			t.Errorf("%s by %s: %v", path, by, err)
		}
	}
	tag := a.Header.Get("Etag")
	if a.Status != 200 || a.Header.Get("Content-Encoding") != encoding || !bytes.Equal(body, content) || tag == "" || a.Header.Get("Content-Length") != fmt.Sprint(len(a.Body)) {
		t.Errorf("%s by %s, %q: %d %v, %d bytes of %d", path, by, encoding, a.Status, a.Header, len(body), len(content))
	}
	if head := askBy(t, v.client, http.MethodHead, v.base+path, header); head.Status != 200 || len(head.Body) > 0 ||
		head.Header.Get("Etag") != tag || head.Header.Get("Content-Length") != fmt.Sprint(len(a.Body)) {
		t.Errorf("HEAD %s by %s, %q: %d %v, %d bytes", path, by, encoding, head.Status, head.Header, len(head.Body))
	}
	for value, status := range map[string]int{tag: 304, `"other", W/` + tag: 304, "*": 304, `"other"`: 200} {
		header.Set("If-None-Match", value)
		if known := askBy(t, v.client, http.MethodGet, v.base+path, header); known.Status != status || status == 304 && (len(known.Body) > 0 || known.Header.Get("Etag") != tag) {
			t.Errorf("%s by %s, %q, to who has %s: %d %v", path, by, encoding, value, known.Status, known.Header)
		}
	}
	return a
}

// TestLive_KeepsTheLastGoodFile breaks a file in every way. The log has one line for each
// change, and the memory of the node does not grow.
func TestLive_KeepsTheLastGoodFile(t *testing.T) {
	t.Parallel() // it waits most of the time
	path := filepath.Join(t.TempDir(), "scores.json")
	put(t, path, []byte("[0]"))
	n := documents(t, map[string]string{"scores": "file:" + path})
	wantDocument(t, n, "scores", "[0]", false)
	memory := watchMemory(t, n)
	faults := []struct {
		name string
		make func() error
	}{
		{"broken", func() error { return os.WriteFile(path, []byte(`{"half":`), 0o600) }},
		{"empty", func() error { return os.WriteFile(path, nil, 0o600) }},
		{"gone", func() error { return nil }},
		{"1 GB with nothing in it", func() error { return errors.Join(os.WriteFile(path, nil, 0o600), os.Truncate(path, 1<<30)) }},
		{"a directory", func() error { return os.Mkdir(path, 0o700) }},
	}
	for i, fault := range faults {
		before, after := fmt.Sprintf("[%d]", i), fmt.Sprintf("[%d]", i+1)
		if err := errors.Join(os.Remove(path), fault.make()); err != nil {
			t.Fatal(err)
		}
		wantDocument(t, n, "scores", before, true)
		trial.WantMetric(t, n, `isotone_live_failing{document="scores"}`, 1)
		if err := os.Remove(path); err != nil && fault.name != "gone" {
			t.Fatal(err)
		}
		put(t, path, []byte(after))
		wantDocument(t, n, "scores", after, false)
		trial.WantMetric(t, n, `isotone_live_failing{document="scores"}`, 0)
		wantLines(t, n, "scores", i+1, i+1)
	}
	memory.want(t)
}

// wantLines checks how often the log says that a document fails, and is loaded again.
func wantLines(t *testing.T, n *chaos.Node, document string, failed, loaded int) {
	t.Helper()
	count := func(words string) (lines int) {
		for line := range strings.Lines(n.Log()) {
			if strings.Contains(line, `"msg":"`+words+`"`) && strings.Contains(line, `"document":"`+document+`"`) {
				lines++
			}
		}
		return lines
	}
	await.Done(t, liveTimeout, func() (bool, string) { // the log is written a little later
		f, l := count("live document cannot be loaded"), count("live document is loaded again")
		return f == failed && l == loaded, fmt.Sprintf("%s: %d lines that it cannot be loaded, %d that it is again; want %d and %d", document, f, l, failed, loaded)
	})
}

// memory watches how much memory a node uses.
type memory struct {
	n       *chaos.Node
	before  int64
	highest int64
	quit    chan struct{}
	done    sync.WaitGroup
}

func watchMemory(t *testing.T, n *chaos.Node) *memory {
	t.Helper()
	before, err := n.Process().RSS()
	if err != nil {
		t.Fatal(err)
	}
	m := &memory{n: n, before: before, highest: before, quit: make(chan struct{})}
	p := n.Process()
	m.done.Go(func() {
		for {
			if now, err := p.RSS(); err == nil {
				m.highest = max(m.highest, now)
			}
			select {
			case <-m.quit:
				return
			case <-time.After(5 * time.Millisecond):
			}
		}
	})
	t.Cleanup(m.stop)
	return m
}

func (m *memory) stop() {
	select {
	case <-m.quit:
	default:
		close(m.quit)
	}
	m.done.Wait()
}

// want ends the watch and fails the test if the node's memory grew too much.
func (m *memory) want(t *testing.T) {
	t.Helper()
	m.stop()
	t.Logf("resident memory: %d MiB before, %d MiB at most", m.before>>20, m.highest>>20)
	if m.highest-m.before > liveGrowthMax {
		t.Errorf("the node grew by %d MiB, want %d at most", (m.highest-m.before)>>20, liveGrowthMax>>20)
	}
}

// TestLive_StreamBringsEachChange follows streams over several protocols while the file
// changes. The fastest change must be there within two intervals; on a busy machine others are
// late.
func TestLive_StreamBringsEachChange(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "scores.json")
	put(t, path, []byte("0"))
	n := documents(t, map[string]string{"scores": "file:" + path})
	wantDocument(t, n, "scores", "0", false)
	streams := map[string]*stream{}
	for by, v := range httpClients(t, n) {
		streams[by] = openStream(t, v, "")
		if e := streams[by].next(t); e.data != "0" || e.id == "" {
			t.Fatalf("%s: a stream begins with %+v", by, e)
		}
	}
	const changes = 10
	took := map[string][]time.Duration{}
	var last event
	for i := 1; i <= changes; i++ {
		began := time.Now()
		put(t, path, fmt.Appendf(nil, "%d", i))
		for by, s := range streams {
			if last = s.next(t); last.data != fmt.Sprint(i) {
				t.Fatalf("%s: %+v, want %d", by, last, i)
			}
			took[by] = append(took[by], last.at.Sub(began))
		}
	}
	for by, list := range took {
		slices.Sort(list)
		t.Logf("%s: %v", by, list)
		if list[0] > 2*liveInterval {
			t.Errorf("%s: every change took more than %v", by, list[0])
		}
	}
	// A client that reconnects has the latest event already.
	again := openStream(t, httpClients(t, n)["plain"], last.id)
	put(t, path, []byte(`"next"`))
	if e := again.next(t); e.data != `"next"` {
		t.Errorf("a stream that goes on after %d begins with %+v", changes, e)
	}
	trial.WantMetric(t, n, `isotone_live_streams{document="scores"}`, float64(len(streams)+1))
	n.Shutdown() // with streams open
}

// event is one event of a stream.
type event struct {
	id, data string
	at       time.Time
}

// stream is an open stream of events.
type stream struct{ events chan event }

// openStream opens a stream; had is the ID of the last event that the reader has.
func openStream(t *testing.T, v httpClient, had string) *stream {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, v.base+"/live/scores/stream", nil)
	if err != nil {
		t.Fatal(err)
	}
	if had != "" {
		r.Header.Set("Last-Event-ID", had)
	}
	answer, err := (&http.Client{Transport: v.client.Transport}).Do(r) // without its timeout
	if err != nil {
		cancel()
		t.Fatal(err)
	}
	if answer.StatusCode != 200 || answer.Header.Get("Content-Type") != "text/event-stream" || answer.Proto != v.proto {
		t.Errorf("a stream: %s %d %v", answer.Proto, answer.StatusCode, answer.Header)
	}
	s := &stream{events: make(chan event, 64)}
	var reader sync.WaitGroup
	reader.Go(func() {
		defer close(s.events)
		var e event
		for lines := bufio.NewScanner(answer.Body); lines.Scan(); {
			name, value, _ := strings.Cut(lines.Text(), ": ")
			switch {
			case name == "id":
				e.id = value
			case name == "data":
				e.data += value
			case lines.Text() == "" && e.data != "":
				e.at = time.Now()
				select {
				case s.events <- e:
				case <-ctx.Done():
					return
				}
				e = event{}
			}
		}
	})
	t.Cleanup(func() {
		cancel()
		_ = answer.Body.Close()
		reader.Wait()
	})
	return s
}

func (s *stream) next(t *testing.T) event {
	t.Helper()
	select {
	case e, ok := <-s.events:
		if !ok {
			t.Fatal("a stream ended")
		}
		if !json.Valid([]byte(e.data)) {
			t.Errorf("an event of %q", e.data)
		}
		return e
	case <-time.After(liveTimeout):
		t.Fatal("a stream sends nothing")
	}
	return event{}
}
