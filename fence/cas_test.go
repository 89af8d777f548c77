package fence_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/fence"
)

// casStore appends words to the data of a cell.
type casStore struct{ *fence.CASFence }

func appendWord(word string) func([]byte) ([]byte, error) {
	return func(data []byte) ([]byte, error) { return append(data, word+" "...), nil }
}

func (s casStore) raise(ctx context.Context, token isotone.Timestamp, word string) error {
	return s.Raise(ctx, token, appendWord(word))
}

func (s casStore) check(ctx context.Context, stamp isotone.Timestamp, word string) error {
	return s.Check(ctx, stamp, appendWord(word))
}

func (s casStore) words(ctx context.Context) ([]string, error) {
	data, err := s.Read(ctx)
	return strings.Fields(string(data)), err
}

// objects is a server of one object with the conditions of RFC 9110.
type objects struct {
	mu      sync.Mutex
	value   []byte
	version int
	weak    bool
	encodes bool // another encoding, with a tag of its own, if the client accepts one
	short   bool // the answer does not say how long it is
	answer  int  // if not 0, the status of each answer
}

func (o *objects) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	o.mu.Lock()
	defer o.mu.Unlock()
	tag := fmt.Sprintf("%q", fmt.Sprint(o.version))
	switch {
	case o.answer != 0:
		http.Error(w, "as told", o.answer)
	case r.Method == http.MethodGet && o.value == nil:
		http.NotFound(w, r)
	case r.Method == http.MethodGet && o.weak:
		w.Header().Set("ETag", "W/"+tag)
		_, _ = w.Write(o.value)
	case r.Method == http.MethodGet && o.encodes && r.Header.Get("Accept-Encoding") != "identity":
		w.Header().Set("ETag", `"gzip"`)
		_, _ = w.Write(o.value)
	case r.Method == http.MethodGet && o.short:
		conn, _, _ := w.(http.Hijacker).Hijack()
		fmt.Fprintf(conn, "HTTP/1.0 200 OK\r\nETag: %s\r\n\r\n%s", tag, o.value)
		conn.Close()
	case r.Method == http.MethodGet:
		w.Header().Set("ETag", tag)
		_, _ = w.Write(o.value)
	case r.Method == http.MethodPut:
		if o.value == nil && r.Header.Get("If-None-Match") != "*" || o.value != nil && r.Header.Get("If-Match") != tag {
			http.Error(w, "another version", http.StatusPreconditionFailed)
			return
		}
		o.value, _ = io.ReadAll(r.Body)
		o.version++
	default:
		http.Error(w, "method", http.StatusMethodNotAllowed)
	}
}

func startObjects(t *testing.T, o *objects) fence.Cell {
	server := httptest.NewServer(o)
	t.Cleanup(server.Close)
	return fence.Object(server.Client(), server.URL+"/manifest")
}

func TestObject_IsAFence(t *testing.T) {
	testStore(t, func(t *testing.T) store { return casStore{fence.CAS(startObjects(t, &objects{}), "manifest")} })
}

// A client that follows a redirect makes a GET of a PUT, which succeeds and writes nothing.
func TestObject_FollowsNoRedirect(t *testing.T) {
	o := &objects{}
	direct := fence.CAS(startObjects(t, o), "manifest")
	must(t, direct.Seal(t.Context(), at(1)))
	for _, code := range []int{301, 302, 303, 307, 308} {
		front := httptest.NewServer(http.RedirectHandler("/elsewhere", code))
		t.Cleanup(front.Close)
		f := fence.CAS(fence.Object(front.Client(), front.URL), "manifest")
		if err := f.Seal(t.Context(), at(9)); err == nil || !strings.Contains(err.Error(), fmt.Sprint(code)) {
			t.Errorf("%d: %v", code, err)
		}
	}
	onlyPuts := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPut {
			http.Redirect(w, r, "/", http.StatusMovedPermanently)
			return
		}
		o.ServeHTTP(w, r)
	}))
	t.Cleanup(onlyPuts.Close)
	if err := fence.CAS(fence.Object(onlyPuts.Client(), onlyPuts.URL), "manifest").Seal(t.Context(), at(9)); err == nil || !strings.Contains(err.Error(), "301") {
		t.Errorf("a PUT that is redirected: %v", err)
	}
	must(t, direct.Check(t.Context(), at(5), appendWord("a"))) // nothing was sealed, and all said so
}

func TestObject_TakesNoOtherEncoding(t *testing.T) {
	f := fence.CAS(startObjects(t, &objects{encodes: true}), "manifest")
	must(t, f.Raise(t.Context(), at(1), appendWord("a")))
	must(t, f.Raise(t.Context(), at(1), appendWord("b")))
	hasWords(t, casStore{f}, "a b")
}

func TestObject_RefusesStoresWithoutConditions(t *testing.T) {
	for want, o := range map[string]*objects{
		"no strong ETag":            {value: []byte("x"), weak: true},
		"503 Service Unavailable":   {answer: http.StatusServiceUnavailable},
		"404 Not Found":             {answer: http.StatusNotFound}, // a bucket that is not there
		"does not begin with a fen": {value: []byte("somebody's object")},
		"has more than":             {value: make([]byte, 17<<20)},
		"how long":                  {value: []byte("half of"), short: true},
		"202 Accepted":              {answer: http.StatusAccepted},
	} {
		f := fence.CAS(startObjects(t, o), "manifest")
		if err := f.Raise(t.Context(), at(1), appendWord("a")); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v; want %q", err, want)
		}
	}
	f := fence.CAS(startObjects(t, &objects{}), "manifest")
	if err := f.Raise(t.Context(), at(1), func([]byte) ([]byte, error) { return make([]byte, 17<<20), nil }); err == nil || !strings.Contains(err.Error(), "at most") {
		t.Errorf("a large object: %v", err)
	}
}

// changing is a cell that somebody else always writes first.
type changing struct{ loads int }

func (c *changing) Load(context.Context) ([]byte, string, error)  { c.loads++; return nil, "", nil }
func (c *changing) Replace(context.Context, string, []byte) error { return fence.ErrChanged }

func TestCAS_EndsWhenTheValueAlwaysChanges(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	c := &changing{}
	if err := fence.CAS(c, "x").Raise(ctx, at(1), nil); !errors.Is(err, fence.ErrChanged) || c.loads < 2 {
		t.Errorf("%v after %d loads", err, c.loads)
	}
	cancel()
	if err := fence.CAS(c, "x").Raise(ctx, at(1), nil); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
}

// memory is a cell that returns its own value.
type memory struct{ value []byte }

func (m *memory) Load(context.Context) ([]byte, string, error) { return m.value, "1", nil }
func (m *memory) Replace(_ context.Context, _ string, v []byte) error {
	m.value = v
	return nil
}

func TestCAS_AnUpdateThatFailsChangesNothing(t *testing.T) {
	m := &memory{value: []byte(at(1).String() + "\nhello")}
	f := fence.CAS(m, "x")
	no := errors.New("no")
	if err := f.Raise(t.Context(), at(2), func(data []byte) ([]byte, error) { copy(data, "other"); return nil, no }); !errors.Is(err, no) {
		t.Error(err)
	}
	data, err := f.Read(t.Context())
	must(t, err)
	copy(data, "again")
	hasWords(t, casStore{f}, "hello")
}

func TestCAS_ErrorOfTheUpdateWritesNothing(t *testing.T) {
	f := fence.CAS(startObjects(t, &objects{}), "manifest")
	must(t, f.Raise(t.Context(), at(1), appendWord("a")))
	full := errors.New("full")
	if err := f.Raise(t.Context(), at(2), func([]byte) ([]byte, error) { return nil, full }); !errors.Is(err, full) {
		t.Error(err)
	}
	must(t, f.Raise(t.Context(), at(1), appendWord("b"))) // the fence has not moved either
	hasWords(t, casStore{f}, "a b")
}

// TestAll_SealsEveryStore: a write that any of them refuses is refused by all, and the one that fails is named.
func TestAll_SealsEveryStore(t *testing.T) {
	a, b := fence.CAS(startObjects(t, &objects{}), "a"), fence.CAS(startObjects(t, &objects{}), "b")
	list := []fence.Sealer{a, b}
	f := fence.All(list...)
	list[1] = a // what the caller does with its list is of no matter
	must(t, f.Seal(t.Context(), at(7)))
	for _, s := range []*fence.CASFence{a, b} {
		keep := func(data []byte) ([]byte, error) { return data, nil }
		if err := s.Check(t.Context(), at(7), keep); !errors.Is(err, fence.ErrFenced) {
			t.Errorf("a write at a sealed stamp: %v", err)
		}
		must(t, s.Check(t.Context(), at(8), keep))
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if err := fence.All(a, b).Seal(ended, at(9)); !errors.Is(err, context.Canceled) {
		t.Errorf("a store that cannot be reached: %v", err)
	}
	if fence.All().Seal(t.Context(), at(9)) == nil {
		t.Error("no store is sealed")
	}
}
