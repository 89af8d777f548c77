//go:build linux

package failover_test

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/isotone/isotone/internal/check/await"
	"github.com/isotone/isotone/internal/check/chaos"
	"github.com/isotone/isotone/internal/check/trial"
	"github.com/isotone/isotone/internal/front/grpc"
)

// called is the answer to a call of gRPC.
type called struct {
	message []byte
	status  string // grpc-status
	details string // of the status, as bytes
}

// overHTTP2 returns a client of HTTP/2 without TLS.
func overHTTP2(t *testing.T) *http.Client {
	t.Helper()
	transport := &http.Transport{Protocols: new(http.Protocols)}
	transport.Protocols.SetUnencryptedHTTP2(true)
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport, Timeout: trial.AnswerTimeout}
}

// get asks a node for a timestamp of a timeline.
func get(c *http.Client, addr, timeline string) (a called, err error) {
	message := append([]byte{0x32, byte(len(timeline))}, timeline...)
	body := grpc.EndFrame(append(grpc.BeginFrame(nil), message...), 0)
	r, err := http.NewRequest(http.MethodPost, "http://"+addr+grpc.PathTimestampsGet, bytes.NewReader(body))
	if err != nil {
		return a, err
	}
	r.Header.Set("Content-Type", grpc.ContentType)
	answer, err := c.Do(r)
	if err != nil {
		return a, err
	}
	defer func() { _ = answer.Body.Close() }()
	if body, err = io.ReadAll(answer.Body); err != nil {
		return a, err
	}
	fields := answer.Header // where there is no message
	if fields.Get("Grpc-Status") == "" {
		fields = answer.Trailer
	}
	details, err := base64.RawStdEncoding.DecodeString(fields.Get("Grpc-Status-Details-Bin"))
	a = called{status: fields.Get("Grpc-Status"), details: string(details)}
	if a.status == "0" && err == nil {
		a.message, _, err = grpc.ParseFrame(body)
	}
	return a, err
}

// TestGRPC_TheOwnerOfATimelineAnswers, whether it leads or not, and each other node names it.
func TestGRPC_TheOwnerOfATimelineAnswers(t *testing.T) {
	t.Parallel()
	o := trial.Options()
	o.Env = map[string]string{"TIMELINES": "1"}
	c := chaos.StartCluster(t, o)
	c.WaitReady()
	client := overHTTP2(t)
	last := map[string]string{}
	for i, owner := range c.Nodes {
		name := fmt.Sprintf("of-%d", i+1)
		operate(t, c, "group", "create", name)
		operate(t, c, "timeline", "create", name, "--group", name)
		for _, owner := range append(c.Others(owner), owner) { // it moves through all of them
			operate(t, c, "group", "move", name, fmt.Sprint(owner.ID))
			for _, n := range append(c.Others(owner), owner) {
				a := untilOwned(t, client, n, name, owner)
				switch {
				case n == owner && (len(a.message) != 18+2 || string(a.message) <= last[name]):
					t.Errorf("timeline %s, node %d: %x after %x", name, n.ID, a.message, last[name])
				case n != owner && !strings.Contains(a.details, "not_leader"):
					t.Errorf("timeline %s, node %d: %q, want the owner %s", name, n.ID, a.details, owner.HTTPAddr)
				}
				if n == owner {
					last[name] = string(a.message)
				}
			}
		}
	}
	leader := c.WaitLeader() // which alone knows that there is none
	if a, err := get(client, leader.HTTPAddr, "nothing"); err != nil || a.status != "5" || !strings.Contains(a.details, "not_found") {
		t.Errorf("the leader of a timeline that there is not: %+v, %v", a, err)
	}
	for _, n := range c.Nodes {
		if a, err := get(client, n.HTTPAddr, strings.Repeat("x", 65)); err != nil || a.status != "3" || !strings.Contains(a.details, "a name of 65 bytes") {
			t.Errorf("node %d of a name that is too long: %+v, %v", n.ID, a, err)
		}
	}
}

// untilOwned asks a node until it says what it does once it knows the owner: a node learns of a move a moment after the leader.
func untilOwned(t *testing.T, client *http.Client, n *chaos.Node, name string, owner *chaos.Node) (a called) {
	t.Helper()
	await.Done(t, await.Timeout, func() (bool, string) {
		var err error
		a, err = get(client, n.HTTPAddr, name)
		done := err == nil && (n == owner && a.status == "0" || n != owner && strings.Contains(a.details, owner.HTTPAddr))
		return done, fmt.Sprintf("node %d of timeline %s, which is at %s: status %q, %q, %v", n.ID, name, owner.HTTPAddr, a.status, a.details, err)
	})
	return a
}
