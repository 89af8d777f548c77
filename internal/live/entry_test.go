package live_test

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/isotone/isotone/internal/live"
)

// passes lets time go by, and everything that is due happen.
func passes(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

func TestSet_KeepsTheLastGoodDocumentAndItsAgeGrows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log lines
		var got codes
		var failing []bool
		v := newVariable(`{"a":1}`)
		s := open(t, live.Config{
			Sources: []live.Source{v.source("doc")}, Interval: time.Second, Log: log.logger(),
			Observe: live.Observer{Loaded: got.loaded, Failing: func(_ string, f bool) { failing = append(failing, f) }},
		})
		passes(100 * time.Millisecond)
		first := s.Lookup("doc")
		if first == nil || first.Version() != 1 || ask(s, "GET", "/live/doc").Header().Get("Age") != "" {
			t.Fatalf("%+v", first)
		}
		for i, bad := range []string{"", "{", `{"a":1`, `{"a":1}x`, "\xff", "\"\xff\"", "\ufeff1", "nil"} {
			v.set(bad)
			passes(time.Second)
			w := ask(s, "GET", "/live/doc")
			if age := fmt.Sprint(i + 1); w.Code != 200 || w.Body.String() != `{"a":1}` || w.Header().Get("Age") != age {
				t.Fatalf("%q: %d %q %v, want age %s", bad, w.Code, w.Body, w.Header(), age)
			}
		}
		v.fail(errGone)
		passes(10 * time.Second)
		if age, stale := s.Lookup("doc").Age(); age != 18*time.Second || !stale || s.Lookup("doc").Version() != 1 {
			t.Errorf("age %v, %v", age, stale)
		}
		v.set(`{"a":1}`) // the same again
		passes(time.Second)
		w := ask(s, "GET", "/live/doc")
		if w.Header().Get("Age") != "" || w.Header().Get("Etag") != first.ETag() || s.Lookup("doc").Version() != 1 {
			t.Errorf("recovered: %v", w.Header())
		}
		v.fail(errGone)
		passes(3 * time.Second)
		if log.count("cannot be loaded") != 2 || log.count("loaded again") != 1 || log.count("live document is loaded\"") != 1 {
			t.Errorf("the log has not one line for each change:\n%s", log.String())
		}
		if fmt.Sprint(failing) != "[true false true]" {
			t.Errorf("failing: %v", failing)
		}
		if got.count("doc ok") != 1 || got.count("doc unchanged") != 1 || got.count("doc invalid_argument") != 8 || got.count("doc internal") != 13 {
			t.Errorf("loads: %v", got.got)
		}
	})
}

func TestSet_LoadsOnceInAnInterval(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var at []time.Duration
		began := time.Now()
		var running int
		s := open(t, live.Config{Interval: time.Second, Timeout: 10 * time.Second, Sources: []live.Source{
			live.Func("doc", func(context.Context) ([]byte, error) {
				if running++; running != 1 {
					t.Error("two loads at once")
				}
				defer func() { running-- }()
				at = append(at, time.Since(began))
				if len(at) == 3 {
					time.Sleep(2500 * time.Millisecond)
				}
				return fmt.Appendf(nil, "%d", len(at)), nil
			}),
		}})
		passes(7500 * time.Millisecond)
		// The third takes two and a half seconds: one tick waits for it, one is lost.
		if want := "[0s 1s 2s 4.5s 5s 6s 7s]"; fmt.Sprint(at) != want {
			t.Errorf("loads at %v, want %s", at, want)
		}
		if v := s.Lookup("doc").Version(); v != 7 {
			t.Errorf("version %d", v)
		}
	})
}

func TestSet_TimeoutEndsALoad(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log lines
		var got codes
		var hang atomic.Bool
		s := open(t, live.Config{Interval: time.Second, Log: log.logger(), Observe: live.Observer{Loaded: got.loaded}, Sources: []live.Source{
			live.Func("doc", func(ctx context.Context) ([]byte, error) {
				if hang.Load() {
					<-ctx.Done()
					return nil, ctx.Err()
				}
				return []byte("1"), nil
			}),
		}})
		passes(500 * time.Millisecond)
		hang.Store(true)
		passes(5 * time.Second)
		if age, stale := s.Lookup("doc").Age(); age != 5*time.Second || !stale {
			t.Errorf("age %v, %v", age, stale)
		}
		if log.count("cannot be loaded") != 1 || log.count("deadline exceeded") != 1 || got.count("doc deadline_exceeded") < 3 {
			t.Errorf("%v\n%s", got.got, log.String())
		}
	})
}

func TestSet_NoticesALoadThatHeedsNoTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log lines
		release := make(chan struct{})
		loads := 0
		s := open(t, live.Config{Interval: time.Second, Log: log.logger(), Sources: []live.Source{
			live.Func("doc", func(context.Context) ([]byte, error) {
				if loads++; loads == 2 {
					<-release
				}
				return []byte("1"), nil
			}),
		}})
		passes(20*time.Second + time.Millisecond)
		if age, stale := s.Lookup("doc").Age(); age != 20*time.Second || !stale || log.count("cannot be loaded") != 1 {
			t.Errorf("age %v, %v\n%s", age, stale, log.String())
		}
		close(release)
		passes(time.Second)
		if _, stale := s.Lookup("doc").Age(); stale || log.count("loaded again") != 1 {
			t.Errorf("not recovered:\n%s", log.String())
		}
	})
}

func TestSet_DateFollowsTheClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := open(t, live.Config{Interval: time.Hour, Sources: []live.Source{newVariable("1").source("doc")}})
		passes(0)
		kept := s.Lookup("doc")
		before := string(kept.Response(false, false, ""))
		for range 5 {
			passes(time.Second)
			want := "Date: " + time.Now().UTC().Format("Mon, 02 Jan 2006 15:04:05 GMT") + "\r\n"
			if got := string(s.Lookup("doc").Response(false, false, "")); !strings.Contains(got, want) {
				t.Errorf("%q lacks %q", got, want)
			}
		}
		if string(kept.Response(false, false, "")) != before || kept.Version() != s.Lookup("doc").Version() {
			t.Error("a document that was kept has changed")
		}
	})
}

func TestSet_SubscribeTellsOfChangesOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := newVariable("x")
		s := open(t, live.Config{Interval: time.Second, Sources: []live.Source{v.source("doc")}})
		if _, _, ok := s.Subscribe("other"); ok {
			t.Error("there is no other")
		}
		passes(0)
		d, changed, ok := s.Subscribe("doc")
		if d != nil || !ok || s.Lookup("doc") != nil {
			t.Fatal("a document that was never loaded")
		}
		v.set("1")
		<-changed
		for version := uint64(1); version < 4; version++ {
			d, changed, _ = s.Subscribe("doc")
			if d.Version() != version || string(d.JSON()) != fmt.Sprint(version) {
				t.Errorf("version %d: %s", d.Version(), d.JSON())
			}
			passes(3 * time.Second)
			select {
			case <-changed:
				t.Error("told of no change")
			default:
			}
			v.set(fmt.Sprint(version + 1))
			<-changed
		}
	})
}

func TestSet_CloseEndsALoadAndKeepsTheDocuments(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log lines
		s := open(t, live.Config{Interval: time.Second, Log: log.logger(), Sources: []live.Source{
			newVariable("1").source("a"),
			live.Func("b", func(ctx context.Context) ([]byte, error) { <-ctx.Done(); return nil, ctx.Err() }),
		}})
		passes(0)
		s.Close()
		s.Close()
		if d := s.Lookup("a"); d == nil || string(d.JSON()) != "1" || s.Lookup("b") != nil {
			t.Error("the last document is gone")
		}
		if log.count("cannot") != 0 {
			t.Errorf("the end counts as a failure:\n%s", log.String())
		}
	})
}
