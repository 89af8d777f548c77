package live_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/isotone/isotone/internal/check/await"
	"github.com/isotone/isotone/internal/check/parallel"
	"github.com/isotone/isotone/internal/live"
)

// patience is how long a test waits for what must happen. It only ever runs out when
// the test fails.
const patience = time.Minute

func TestMain(m *testing.M) {
	if crowdServe != nil && os.Getenv(crowdEnv) != "" {
		crowdServe(os.Getenv(crowdEnv))
		return
	}
	goleak.VerifyTestMain(parallel.Tests{M: m, N: 6})
}

// crowdServe is what this program is when it is started with crowdEnv.
var crowdServe func(path string)

const crowdEnv = "LIVE_TEST_CROWD"

// open returns a set that the test closes. The interval is the shortest, if not given.
func open(t testing.TB, cfg live.Config) *live.Set {
	t.Helper()
	if cfg.Interval == 0 {
		cfg.Interval = live.IntervalMin
	}
	s, err := live.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

// parse returns the sources of a setting.
func parse(t testing.TB, text string) []live.Source {
	t.Helper()
	sources, err := live.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	return sources
}

// reads waits until the document has that JSON.
func reads(t testing.TB, s *live.Set, name, want string) {
	t.Helper()
	await.Until(t, name+" to be "+want, func() bool {
		d := s.Lookup(name)
		return d != nil && string(d.JSON()) == want
	})
}

// ask has the handler answer. Fields are name, value, …
func ask(s *live.Set, method, target string, fields ...string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, target, nil)
	for i := 0; i < len(fields); i += 2 {
		r.Header.Add(fields[i], fields[i+1])
	}
	w := httptest.NewRecorder()
	s.Handler().ServeHTTP(w, r)
	return w
}

// variable is a source that the test changes.
type variable struct {
	value atomic.Pointer[outcome]
	loads atomic.Int64
}

type outcome struct {
	text string
	err  error
}

func newVariable(text string) *variable {
	v := new(variable)
	v.set(text)
	return v
}

func (v *variable) set(text string) { v.value.Store(&outcome{text: text}) }
func (v *variable) fail(err error)  { v.value.Store(&outcome{err: err}) }

func (v *variable) source(name string) live.Source {
	return live.Func(name, func(context.Context) ([]byte, error) {
		v.loads.Add(1)
		o := v.value.Load()
		return []byte(o.text), o.err
	})
}

var errGone = errors.New("gone")

// lines is a log that the test reads.
type lines struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(p)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.String()
}

func (l *lines) count(text string) int { return strings.Count(l.String(), text) }

func (l *lines) logger() *slog.Logger { return slog.New(slog.NewTextHandler(l, nil)) }

// codes counts what Loaded is told.
type codes struct {
	mu  sync.Mutex
	got map[string]int
}

func (c *codes) loaded(name, code string, _ time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.got == nil {
		c.got = map[string]int{}
	}
	c.got[name+" "+code]++
}

func (c *codes) all() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return fmt.Sprint(c.got)
}

func (c *codes) count(key string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.got[key]
}
