package web_test

import (
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/front/web"
	"github.com/isotone/isotone/snowflake"
)

// ids counts up from far above what JavaScript can count to.
type ids struct {
	next  atomic.Int64
	fails atomic.Pointer[isotone.Error]
}

const firstID = 1 << 62

func newIDs() *ids {
	g := &ids{}
	g.next.Store(firstID)
	return g
}

func (g *ids) Fill(dst []snowflake.ID) error {
	if err := g.fails.Load(); err != nil {
		return err
	}
	last := g.next.Add(int64(len(dst)))
	for i := range dst {
		dst[i] = snowflake.ID(last - int64(len(dst)) + int64(i))
	}
	return nil
}

func (g *ids) Worker() (int, snowflake.Layout, error) {
	if err := g.fails.Load(); err != nil {
		return 0, snowflake.Layout{}, err
	}
	return 0, snowflake.Twitter, nil
}

func TestSnowflake_EachFormatOverEachProtocol(t *testing.T) {
	g := newIDs()
	s := start(t, func(c *web.Config) { c.IDs = g })
	eachProtocol(t, s, func(t *testing.T, c *client) {
		for target, want := range map[string]string{
			"/api/snowflake":                     "4611686018427387904",
			"/api/snowflake?n=2":                 "4611686018427387904\n4611686018427387905",
			"/api/snowflake?format=json":         `{"ids":["4611686018427387904"]}`,
			"/api/snowflake?format=json&n=2&x=y": `{"ids":["4611686018427387904","4611686018427387905"]}`,
		} {
			g.next.Store(firstID)
			a := c.get(t, target)
			kind := "text/plain; charset=utf-8"
			if strings.Contains(target, "json") {
				kind = "application/json"
			}
			if a.StatusCode != 200 || string(a.body) != want || a.Header.Get("Content-Type") != kind || a.Header.Get("Cache-Control") != "no-store" {
				t.Errorf("%s: %d %q %v", target, a.StatusCode, a.body, a.Header)
			}
		}
		g.next.Store(firstID)
		if a := c.get(t, "/api/snowflake", "Accept", "application/json"); string(a.body) != `{"ids":["4611686018427387904"]}` {
			t.Errorf("Accept: %q", a.body)
		}
		a := c.get(t, "/api/snowflake?n=65536")
		lines := strings.Split(string(a.body), "\n")
		if len(lines) != 65536 || lines[65535] != strconv.Itoa(firstID+65536) || a.Header.Get("Content-Length") != strconv.Itoa(len(a.body)) {
			t.Errorf("%d lines, the last is %q", len(lines), lines[len(lines)-1])
		}
	})
}

func TestSnowflake_RefusesWhatIsNotGood(t *testing.T) {
	g := newIDs()
	s := start(t, func(c *web.Config) { c.IDs = g })
	c := s.client(t, "http1")
	for _, query := range []string{"n=0", "n=65537", "n=x", "n=1&n=1", "format=range", "format=json&format=json", "n=01", "a;b", "n=%zz"} {
		wantFault(t, c.get(t, "/api/snowflake?"+query), 400, isotone.CodeInvalidArgument)
	}
	for _, method := range []string{http.MethodPost, http.MethodHead} {
		if a := c.do(t, method, "/api/snowflake", nil); a.StatusCode != 405 || a.Header.Get("Allow") != "GET" {
			t.Errorf("%s: %d, Allow %q", method, a.StatusCode, a.Header.Get("Allow"))
		}
	}
	if g.next.Load() != firstID {
		t.Error("a bad request has used ids up")
	}
	for _, err := range []*isotone.Error{isotone.ErrOverloaded, isotone.ErrClock, isotone.ErrNoLeader} {
		g.fails.Store(err)
		wantFault(t, c.get(t, "/api/snowflake"), 503, err.Code)
	}
	wantFault(t, start(t).client(t, "http1").get(t, "/api/snowflake"), 404, isotone.CodeNotFound)
}
