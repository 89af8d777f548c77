package main

import (
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/isotone/isotone/internal/operator"
)

// The commands look where "isotone serve" and "isotone dev" serve.
func TestLikelyNodes_AreThoseOfServeAndDev(t *testing.T) {
	want := []string{"localhost:8080", "127.0.0.1:8081", "127.0.0.1:8082", "127.0.0.1:8083"}
	if got := operator.LikelyNodes("localhost:8080"); !reflect.DeepEqual(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	field, _ := reflect.TypeFor[devCmd]().FieldByName("Port")
	if got := field.Tag.Get("default"); got != fmt.Sprint(operator.DevPort) {
		t.Errorf("isotone dev begins at port %s, want %d", got, operator.DevPort)
	}
	for _, name := range []string{"status", "bench", "member list"} {
		_, out, _ := command(append(strings.Fields(name), "--help")...)
		out = strings.Join(strings.Fields(out), " ")
		if !strings.Contains(out, ":8080 or, if no node answers there, one of \"isotone dev\" at ports 8081 to 8083") && !strings.Contains(out, "_raft, /var/lib/isotone or /var/lib/isotone/data; or localhost:8080; or a node of \"isotone dev\" at ports 8081 to 8083") {
			t.Errorf("%s --help does not say where it looks: %s", name, out)
		}
	}
}
