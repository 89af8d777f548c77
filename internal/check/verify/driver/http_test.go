//go:build linux

package driver_test

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/isotone/isotone/internal/check/verify/driver"
)

func TestHTTP_ItTakesNumbersFromAnswers(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/text":
			fmt.Fprintln(w, 100+len(r.URL.Query().Get("n")))
		case "/json":
			fmt.Fprint(w, `{"id": 7, "text": "340282366920938463463374607431768211455"}`)
		case "/binary":
			fmt.Fprint(w, "\x01"+strings.Repeat("\x00", 10))
		case "/busy":
			w.WriteHeader(http.StatusServiceUnavailable)
		case "/elsewhere":
			http.Redirect(w, r, "/text", http.StatusTemporaryRedirect)
		}
	}))
	defer server.Close()
	host := strings.TrimPrefix(server.URL, "http://")
	for _, test := range []struct{ path, number, want, fails string }{
		{"/text?n={count}", "text", "103", ""},
		{"/json", "id", "7", ""},
		{"/json", "text ", "", "malformed"},
		{"/json", "name", "", "malformed"},
		{"/text", "id", "", "malformed"},
		{"/json", "text", "", "malformed"},
		{"/binary", "binary", "1208925819614629174706176", ""}, // 2^80
		{"/text", "binary", "825241610", ""},                   // "100\n"
		{"/json", "binary", "", "malformed"},
		{"/empty", "binary", "", "malformed"},
		{"/busy", "text", "", "unavailable: 503 Service Unavailable"},
		{"/elsewhere", "text", "", "unavailable: 307 Temporary Redirect"},
	} {
		s, err := driver.New("http")
		if err != nil {
			t.Fatal(err)
		}
		options := map[string]string{"url": "http://{host}" + test.path, "number": test.number, "ready": "http://{host}/text"}
		if err := errors.Join(s.Connect([]string{host}, options), s.Ready(0, time.Now().Add(time.Minute))); err != nil {
			t.Fatal(err)
		}
		n, err := s.Ask(0, 100, time.Now().Add(time.Minute))
		got := string(driver.AppendNumber(nil, n))
		switch {
		case test.fails == "" && (err != nil || got != test.want):
			t.Errorf("%+v: %s, %v", test, got, err)
		case test.fails != "" && (err == nil || !strings.HasPrefix(err.Error(), test.fails)):
			t.Errorf("%+v: %v", test, err)
		}
		s.Close()
	}
}

func TestHTTP_ASilentServiceIsUnavailable(t *testing.T) {
	answer := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-answer }))
	defer server.Close()
	defer close(answer)
	h := serve(t, must(driver.New("http")))
	h.send(`{"id":1,"do":"hello","protocol":1}`)
	h.expect(`{"id":1,"ok":{"protocol":1,"system":"http"`)
	h.send(`{"id":2,"do":"plan","plan":{"dir":"/","nodes":[]}}`)
	h.expect(`{"id":2,"error":"invalid","message":"want option command`)
	h.send(`{"id":3,"do":"connect","addresses":[%q]}`, strings.TrimPrefix(server.URL, "http://"))
	h.expect(`{"id":3,"ok":{}}`)
	h.send(`{"id":4,"do":"ask","node":0,"count":1,"times":1,"timeout_ms":1}`)
	h.expect(`{"id":4,"ok":{"calls":[],"failed":{"error":"unavailable","message":"no answer in time"}}}`)
	if err := h.end(); err != nil {
		t.Error(err)
	}
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

func TestHTTP_ItStartsAnyCommand(t *testing.T) {
	needs(t, "python3")
	path, err := filepath.Abs("../../../../examples/python/verify_driver.py")
	if err != nil {
		t.Fatal(err)
	}
	r := run(t, start(t, "http"), 2, map[string]string{"command": "env python3 " + path + " {host} {port}", "env": "NODE={id},DIR={dir}"})
	r.increase(1, 1)
	r.end(0, os.Kill)
	if err := r.p.Ready(t.Context(), 0, time.Second); err == nil {
		t.Error("a node that has ended is ready")
	}
	if got, want := r.plan.Nodes[1].Env, []string{"NODE=2", "DIR=" + r.plan.Nodes[1].Dir}; !slices.Equal(got, want) {
		t.Errorf("%q: want %q", got, want)
	}
}
