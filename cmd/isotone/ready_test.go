package main

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// readyServer answers /readyz with that status and text, and nothing else.
func readyServer(t *testing.T, status int, text string) (addr string) {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != readyPath {
			status = http.StatusNotFound
		}
		w.WriteHeader(status)
		_, _ = w.Write([]byte(text))
	}))
	t.Cleanup(server.Close)
	return strings.TrimPrefix(server.URL, "http://")
}

func TestReady_ExitCodeIsTheAnswer(t *testing.T) {
	for _, tc := range []struct {
		status int
		text   string
		code   int
		want   string
	}{
		{200, "ok", 0, "ok\n"},
		{503, "[+]timestamps ok\n[-]ids failed: no worker\nreadyz check failed\n", exitFailure, "[+]timestamps ok; [-]ids failed: no worker; readyz check failed"},
		{404, "", exitFailure, "is this a node?"},
	} {
		addr := readyServer(t, tc.status, tc.text)
		code, out, err := command("ready", "--endpoint", addr)
		if code != tc.code || !strings.Contains(out+err, tc.want) {
			t.Errorf("%d: exit code %d, %q%q, want %q", tc.status, code, out, err, tc.want)
		}
	}
}

func TestReady_AsksWhereServeListens(t *testing.T) {
	host, port, _ := strings.Cut(readyServer(t, 200, "ok"), ":")
	t.Setenv("HTTP_PORT", port)
	if code, _, err := command("ready"); code != 0 {
		t.Error(err)
	}
	t.Setenv("HTTP_HOST", host)
	if code, _, err := command("ready"); code != 0 {
		t.Error(err)
	}
	t.Setenv("HTTP_PORT", "1")
	if code, _, err := command("ready"); code != exitFailure || !strings.Contains(err, host+":1") {
		t.Errorf("exit code %d, %s", code, err)
	}
	if code, _, err := command("ready", "--timeout", "0s"); code != exitUsage || !strings.Contains(err, "--timeout") {
		t.Errorf("exit code %d, %s", code, err)
	}
}
