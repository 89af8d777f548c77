package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/check/await"
	"github.com/isotone/isotone/internal/check/rig"
	"github.com/isotone/isotone/internal/front"
	"github.com/isotone/isotone/internal/front/httpapi"
	"github.com/isotone/isotone/internal/host/config"
	"github.com/isotone/isotone/internal/inspect/survey"
)

// TestAccess_AQuotaIsWaitedFor, but nothing that is refused for good.
func TestAccess_AQuotaIsWaitedFor(t *testing.T) {
	t.Parallel()
	over := func(w http.ResponseWriter) {
		w.Header().Set("Retry-After", "1")
		w.WriteHeader(http.StatusTooManyRequests)
		_, _ = w.Write(httpapi.Body(isotone.CodeQuotaExceeded, "10 a minute"))
	}
	s := serveScript(t, over, over, members(front.MemberRecord{NodeID: 1, Role: "voter"}))
	if code, out, err := command("member", "list", "--endpoint", s.addr(), "--timeout", "60s"); code != 0 {
		t.Errorf("exit code %d, %s%s", code, out, err)
	}
	// It does not begin a wait longer than its --timeout; else this test would take ten minutes.
	s = serveScript(t, func(w http.ResponseWriter) {
		w.Header().Set("Retry-After", "3600")
		w.WriteHeader(http.StatusTooManyRequests)
		_, _ = w.Write(httpapi.Body(isotone.CodeQuotaExceeded, "10 an hour"))
	})
	if code, _, err := command("member", "list", "--endpoint", s.addr(), "--timeout", "10m"); code != exitFailure || !strings.Contains(err, "quota_exceeded") || len(s.requests()) != 1 {
		t.Errorf("exit code %d, %s, %d requests", code, err, len(s.requests()))
	}
	forbidden := func(w http.ResponseWriter) {
		w.WriteHeader(http.StatusForbidden)
		_, _ = w.Write(httpapi.Body(isotone.CodeForbidden, "ops lacks the role admin"))
	}
	s = serveScript(t, forbidden)
	if code, _, err := command("member", "list", "--endpoint", s.addr(), "--timeout", "60s"); code != exitFailure || !strings.Contains(err, "forbidden") || len(s.requests()) != 1 {
		t.Errorf("exit code %d, %s, %d requests", code, err, len(s.requests()))
	}
}

// limited runs three nodes that forward, with a user u of these limits, the user node, and ops, an operator.
func limited(t *testing.T, limits string) processes {
	list := rig.NewUserList(t, `{"users": {"u": {"roles": ["timestamps", "ids"], "secrets": ["HASH"], "limits": `+limits+`},
		"node": {"roles": ["timestamps"], "secrets": ["HASH"]}, "ops": {"roles": ["admin", "live", "metrics"], "secrets": ["HASH"]}}}`)
	credential := rig.SecretFile(t, "node:"+rig.Secret)
	return startProcessesWith(t, 3, func(s *config.Settings) { s.ACLFile, s.Forward, s.ForwardCredentialFile = list.File, true, credential })
}

// TestQuota_ANodeOwesWhatAnotherHasServed: one request uses up a minute at one node, and so at the others.
func TestQuota_ANodeOwesWhatAnotherHasServed(t *testing.T) {
	t.Parallel()
	all := limited(t, `{"timestamps": 100}`)
	ids := func(p *process, n int) (status int, retry int) {
		status, header, _ := rig.DialHTTP(t, p.s.AdvertiseAddr, nil).Ask(fmt.Sprintf("/api/snowflake?n=%d", n), rig.Bearer("u", rig.Secret))
		retry, _ = strconv.Atoi(header.Get("Retry-After"))
		return status, retry
	}
	await.Until(t, "node 1 makes IDs", func() bool { status, _ := ids(all[0], 6000); return status == http.StatusOK })
	for _, p := range all[1:] {
		await.Until(t, "another node counts them", func() bool { // what it has served itself would be earned after a second
			status, retry := ids(p, 1)
			return status == http.StatusTooManyRequests && retry > 2
		})
	}
}

// TestQuota_AUserHasOneLimitInTheCluster, however it spreads its requests. It asks until it has had nine seconds' worth. Three of them come
// from the buckets of the nodes; the others take six seconds, but two if each node counted by itself.
func TestQuota_AUserHasOneLimitInTheCluster(t *testing.T) {
	t.Parallel()
	const rate, seconds = 100, 9
	all := limited(t, fmt.Sprintf(`{"requests": %d}`, rate))
	var conns []*rig.HTTPConn
	for _, p := range all {
		conns = append(conns, rig.DialHTTP(t, p.s.AdvertiseAddr, nil))
	}
	served, by, start := 0, make([]int, len(conns)), time.Now()
	pace := time.NewTicker(time.Second / (4 * rate)) // leaves the machine to the tests beside this one
	defer pace.Stop()
	for served < seconds*rate {
		<-pace.C
		for i, c := range conns {
			switch status, _, body := c.Ask("/api/snowflake", rig.Bearer("u", rig.Secret)); {
			case status == http.StatusOK:
				served++
				by[i]++
			case status == http.StatusTooManyRequests:
			case strings.Contains(body, `"no_worker"`) && time.Since(start) < await.Timeout: // on a busy machine a lease may end before it is renewed
			default:
				t.Fatalf("node %d: %d %s", i+1, status, body)
			}
		}
	}
	if took := time.Since(start); took < (seconds-5)*time.Second {
		t.Errorf("%d requests a second: %d were served in %v, %v by node", rate, served, took, by)
	}
}

// TestQuota_WhatIsForwardedCountsOnce for the user, and at the leader for the node. isotone status --users has the sums of all nodes.
func TestQuota_WhatIsForwardedCountsOnce(t *testing.T) {
	t.Parallel()
	all := limited(t, `{"timestamps": 1000000}`)
	for _, p := range all { // two of them forward
		for range 2 {
			if status, _, body := rig.DialHTTP(t, p.s.AdvertiseAddr, nil).Ask("/timestamp?n=5", rig.Bearer("u", rig.Secret)); status != http.StatusOK {
				t.Fatalf("%d %s", status, body)
			}
		}
		rig.DialHTTP(t, p.s.AdvertiseAddr, nil).Ask("/metrics", rig.Bearer("u", rig.Secret)) // lacks the role
	}
	if _, _, body := rig.DialHTTP(t, all[0].s.AdvertiseAddr, nil).Ask("/metrics", rig.Bearer("ops", rig.Secret)); !strings.Contains(body, "\n"+`isotone_user_timestamps_total{user="u"} 10`) ||
		!strings.Contains(body, "\n"+`isotone_user_refusals_total{reason="role",user="u"} 1`) {
		t.Errorf("metrics: %s", body)
	}
	flags := []string{"status", "--users", "--user", "ops", "--timeout", "1m", "--password-file", rig.SecretFile(t, rig.Secret), all[0].s.AdvertiseAddr}
	var report struct {
		Users  []survey.Use
		Untold []string
	}
	await.Done(t, await.Timeout, func() (bool, string) { // /state is a moment behind the node
		code, out, err := command(append(flags, "--json")...)
		report.Users, report.Untold = nil, nil
		return json.Unmarshal([]byte(out), &report) == nil && code == 0 && len(report.Untold) == 0, fmt.Sprintf("exit code %d, %s%s", code, out, err)
	})
	want := survey.Use{User: "u", Requests: 6, Timestamps: 30, LackedRole: 3}
	if len(report.Users) != 3 || report.Users[2] != want || report.Users[0].User != "node" || report.Users[0].Timestamps < 20 {
		t.Errorf("%+v, want %+v after node and ops", report.Users, want)
	}
	if code, out, err := command(flags...); code != 0 || !strings.Contains(out, "USER  REQUESTS  TIMESTAMPS  NO ROLE  OVER QUOTA") ||
		!strings.Contains(strings.Join(strings.Fields(out), " "), "u 6 30 3 0") {
		t.Errorf("exit code %d, %s%s", code, out, err)
	}
	flags[3] = "u"
	if _, out, err := command(flags...); !strings.Contains(err, "forbidden") || strings.Contains(out, "u  6") {
		t.Errorf("without the role: %s%s", out, err)
	}
}
