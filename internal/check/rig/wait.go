package rig

import (
	"context"
	"io"
	"net"
	"net/http"
	"testing"

	"github.com/isotone/isotone/internal/check/await"
)

// Wait bounds every wait for an event.
const Wait = await.Timeout

// Soon returns a context of the test that ends after Wait.
func Soon(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), Wait)
	t.Cleanup(cancel)
	return ctx
}

// Fetch requests url, and returns the answer.
func Fetch(t *testing.T, url string) (status int, body string) {
	t.Helper()
	resp, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Error(err)
	}
	return resp.StatusCode, string(b)
}

// Say sends a line of RESP, and returns the answer and that to QUIT.
func Say(t *testing.T, addr, line string) string {
	t.Helper()
	nc, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	_, _ = io.WriteString(nc, line+"\r\nQUIT\r\n")
	answer, err := io.ReadAll(nc)
	if err != nil {
		t.Fatal(err)
	}
	return string(answer)
}
