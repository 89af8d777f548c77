package main

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strings"
	"testing"
)

func TestFindNode_TakesTheFirstThatIsANode(t *testing.T) {
	t.Cleanup(http.DefaultClient.CloseIdleConnections)
	serve := func(body string) string {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path != "/members" {
				http.NotFound(w, r)
				return
			}
			_, _ = io.WriteString(w, body)
		}))
		t.Cleanup(s.Close)
		return s.Listener.Addr().String()
	}
	const nobody = "127.0.0.1:1"
	one, two, page := serve(`{"nodeID":1}`), serve(`{"nodeID":2}`), serve("<html>")
	for _, tc := range []struct {
		addrs []string
		want  string
	}{
		{[]string{one, two}, one},
		{[]string{two, one}, two},
		{[]string{nobody, page, one}, one},
		{[]string{nobody, page}, ""},
	} {
		if got, err := findNode(t.Context(), &nodeAccess{}, tc.addrs); got != tc.want || (err == nil) != (tc.want != "") {
			t.Errorf("%v: %q, %v; want %q", tc.addrs, got, err, tc.want)
		}
	}
	_, err := findNode(t.Context(), &nodeAccess{}, []string{nobody, page})
	if want := fmt.Sprintf("no node answers at %s, %s (another server): name one", nobody, page); err == nil || err.Error() != want {
		t.Errorf("%v, want %s", err, want)
	}
}

// The commands look where "isotone serve" and "isotone dev" serve.
func TestLikelyNodes_AreThoseOfServeAndDev(t *testing.T) {
	want := []string{"localhost:8080", "127.0.0.1:8081", "127.0.0.1:8082", "127.0.0.1:8083"}
	if got := likelyNodes("localhost:8080"); !reflect.DeepEqual(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	field, _ := reflect.TypeFor[devCmd]().FieldByName("Port")
	if got := field.Tag.Get("default"); got != fmt.Sprint(devPort) {
		t.Errorf("isotone dev begins at port %s, want %d", got, devPort)
	}
	for _, name := range []string{"status", "bench", "member list"} {
		_, out, _ := command(append(strings.Fields(name), "--help")...)
		out = strings.Join(strings.Fields(out), " ")
		if !strings.Contains(out, ":8080 or, if no node answers there, one of \"isotone dev\" at ports 8081 to 8083") && !strings.Contains(out, "_raft, /var/lib/isotone or /var/lib/isotone/data; or localhost:8080; or a node of \"isotone dev\" at ports 8081 to 8083") {
			t.Errorf("%s --help does not say where it looks: %s", name, out)
		}
	}
}
