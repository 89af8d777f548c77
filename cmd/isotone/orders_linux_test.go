package main

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/client"
	"github.com/isotone/isotone/internal/check/await"
	"github.com/isotone/isotone/internal/check/rig"
	"github.com/isotone/isotone/internal/core/timeline"
)

// TestOrders_ClientsThatAreBoundFindTheOwner, although they know nothing of timelines and ask for the leader; and who creates timelines with the role
// for it does so at any node.
func TestOrders_ClientsThatAreBoundFindTheOwner(t *testing.T) {
	t.Parallel()
	list := rig.NewUserList(t, `{"users": {
		"ops": {"roles": ["all"], "secrets": ["HASH"]},
		"maker": {"roles": ["timelines"], "timelines": ["tenant-7/*"], "secrets": ["HASH"]},
		"app": {"roles": ["timestamps"], "timeline": "tenant-7/main", "secrets": ["HASH"]}
	}}`)
	c := startProcessCluster(t, "TIMELINES=1", "ANONYMOUS=live", "ACL_FILE="+list.File)
	secret := rig.SecretFile(t, rig.Secret)
	run := func(user, node string, code int, out, stderr string, args ...string) {
		t.Helper()
		wantRun(t, code, out, stderr, append(args, "--yes", "--timeout", "3m", "--endpoint", node, "--user", user, "--password-file", secret)...)
	}
	at := c.Addrs()
	for i, node := range at { // the leader, and others, which pass it on
		name := fmt.Sprintf("tenant-7/%d", i)
		run("maker", node, 0, "is created", "", "timeline", "create", name)
		run("maker", node, 0, name, "", "timeline", "show", name)
		run("maker", node, 0, name, "", "timeline", "list", "--prefix", "tenant-7/")
		run("maker", node, 0, "is deleted", "", "timeline", "delete", name)
		run("maker", node, exitFailure, "", "may not use", "timeline", "create", "tenant-70")
		run("maker", node, exitFailure, "", "may not use", "timeline", "list")
		run("maker", node, exitFailure, "", "the role admin", "timeline", "create", name, "--group", "h000")
		run("maker", node, exitFailure, "", "needs the role admin", "group", "create", "tenant-7/own")
		run("app", node, exitFailure, "", "lacks the role admin", "timeline", "create", "tenant-7/main")
	}
	run("maker", at[0], 0, "is created", "", "timeline", "create", "tenant-7/main")
	// Time of the timeline is hours ahead, which tells its timestamps.
	run("ops", at[0], 0, "", "", "timeline", "floor", "tenant-7/main", time.Now().Add(20*time.Hour).UTC().Format(time.RFC3339))
	isAhead := func(t isotone.Timestamp) bool { return t.Time > uint64(time.Now().Add(10*time.Hour).UnixNano()) }

	goClient, err := client.NewWith(rig.Soon(t), client.Options{Addrs: at, Credentials: client.StaticCredentials("app", rig.Secret)})
	if err != nil {
		t.Fatal(err)
	}
	defer goClient.Close()
	clusterClient := redis.NewClusterClient(&redis.ClusterOptions{Addrs: at, Username: "app", Password: rig.Secret, MaxRedirects: 8})
	defer clusterClient.Close()
	move := func(owner int) {
		moveGroup(t, timeline.GroupOf("tenant-7/main"), owner, strings.Join(at, ","), "--user", "ops", "--password-file", secret)
	}
	for owner := 1; owner <= 3; owner++ {
		move(owner)
		last := isotone.Timestamp{}
		for range 5 {
			ts, err := goClient.Timestamp(rig.Soon(t))
			if err != nil || !isAhead(ts) || !last.Before(ts) {
				t.Errorf("owner %d: the Go client gets %v after %v, %v", owner, ts, last, err)
			}
			last = ts
			text, err := clusterClient.Do(rig.Soon(t), "TS").Text()
			if err != nil || ts.UnmarshalBinary([]byte(text)) != nil || !isAhead(ts) || !last.Before(ts) {
				t.Errorf("owner %d: go-redis gets %q after %v, %v", owner, text, last, err)
			}
			last = ts
		}
		looks := 0
		await.Until(t, fmt.Sprintf("node %d answers, and the others name it", owner), func() bool {
			if looks++; looks%20 == 0 {
				move(owner) // a node that is too busy loses its groups
			}
			return !slices.ContainsFunc(at, func(node string) bool { return !namesOwner(t, node, node == at[owner-1], at[owner-1]) })
		})
	}
}

// namesOwner reports whether a node answers a client that is bound, or redirects it to an address.
func namesOwner(t *testing.T, node string, owns bool, owner string) bool {
	t.Helper()
	r, err := http.NewRequestWithContext(rig.Soon(t), http.MethodGet, "http://"+node+"/timestamp", nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", rig.Bearer("app", rig.Secret))
	a, err := http.DefaultTransport.RoundTrip(r)
	if err != nil {
		t.Fatal(err)
	}
	_ = a.Body.Close()
	if owns {
		return a.StatusCode == http.StatusOK
	}
	return a.StatusCode == http.StatusConflict && strings.Contains(a.Header.Get("Location"), owner)
}
