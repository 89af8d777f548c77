package main

import (
	"bufio"
	"context"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/isotone/isotone/internal/check/await"
	"github.com/isotone/isotone/internal/check/ports"
	"github.com/isotone/isotone/internal/check/rig"
	"github.com/isotone/isotone/internal/host/config"
	"github.com/isotone/isotone/internal/inspect/survey"
	"github.com/isotone/isotone/internal/operator"
	"github.com/isotone/isotone/internal/server"
)

// startThree runs the nodes of "isotone dev" until the test ends, and returns them with node 1
// leading.
func startThree(t *testing.T) []*server.Member {
	t.Helper()
	return startThreeWith(t, config.Default())
}

// startThreeWith is startThree with other common settings.
func startThreeWith(t *testing.T, s config.Settings) []*server.Member {
	t.Helper()
	port, err := ports.Free(operator.DevNodes)
	if err != nil {
		t.Fatal(err)
	}
	members, err := startDev(s, port, t.TempDir(), slog.New(slog.DiscardHandler), nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := stopDev(members); err != nil {
			t.Error(err)
		}
	})
	if err := waitForLeader(t.Context(), members); err != nil {
		t.Fatal(err)
	}
	await.Until(t, "node 1 leads", func() bool {
		leadFirst(t.Context(), members)
		return members[0].Node.Status().Role == "leader"
	})
	return members
}

// A client of a leader that drains is redirected to the next leader on the connection that it
// has, and the node waits for it to leave.
func TestDrain_RedirectsRedisClientsToTheNextLeader(t *testing.T) {
	members := startThree(t)
	m := members[0]
	m.RedirectTime = time.Hour
	nc, err := net.Dial("tcp", m.Addr)
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	_ = nc.SetDeadline(time.Now().Add(time.Minute))
	in := bufio.NewReader(nc)
	ask := func() string {
		if _, err := io.WriteString(nc, "TS\r\n"); err != nil {
			t.Fatal(err)
		}
		line, err := in.ReadString('\n')
		if err == nil && line == "$16\r\n" {
			_, err = io.ReadFull(in, make([]byte, 16+len("\r\n")))
		}
		if err != nil {
			t.Fatalf("%q, %v", line, err)
		}
		return line
	}
	if got := ask(); got != "$16\r\n" {
		t.Fatalf("before: %q", got)
	}
	stopped := make(chan error, 1)
	go func() { stopped <- m.Stop(slog.New(slog.DiscardHandler)) }()
	var got string
	for got = ask(); got == "$16\r\n" || strings.HasPrefix(got, "-CLUSTERDOWN"); got = ask() {
		// it still leads, or nobody does for a moment
	}
	if got != "-MOVED 0 "+members[1].Addr+"\r\n" && got != "-MOVED 0 "+members[2].Addr+"\r\n" {
		t.Errorf("%q, want one of the other nodes", got)
	}
	select {
	case err := <-stopped:
		t.Fatalf("it has ended under a client that asks: %v", err)
	default:
	}
	_ = nc.Close()
	if err := <-stopped; err != nil {
		t.Error(err)
	}
}

// A node of "isotone dev" that drains leaves the others running.
func TestDev_OneNodeCanBeDrained(t *testing.T) {
	t.Parallel()
	t.Cleanup(http.DefaultClient.CloseIdleConnections)
	members := startThree(t)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- waitAll(ctx, members, slog.New(slog.DiscardHandler)) }()
	for i, m := range members[:2] {
		await.Until(t, "its state", func() bool { status, _ := rig.Fetch(t, "http://"+m.Addr+"/state"); return status == 200 })
		code, out, text := command("drain", "--yes", "--endpoint", m.Addr)
		if code != 0 || !strings.Contains(out, "node "+strconv.Itoa(i+1)+" at "+m.Addr+" is draining") {
			t.Fatalf("exit code %d\n%s%s", code, out, text)
		}
		await.Until(t, "node "+strconv.Itoa(i+1)+" has ended", func() bool {
			nc, err := net.Dial("tcp", m.Addr)
			if err == nil {
				_ = nc.Close()
			}
			return err != nil
		})
		if status, _ := rig.Fetch(t, "http://"+members[2].Addr+"/up"); status != 200 {
			t.Errorf("node 3: %d", status)
		}
		if i == 0 {
			await.Until(t, "another leader", func() bool { return members[2].Node.Status().NotReady == "" && members[2].Node.Status().Leader != 1 })
		}
	}
	select {
	case err := <-ended:
		t.Fatalf("dev has ended with node 3 running: %v", err)
	default:
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

func TestDrain_SaysWhatItEnds(t *testing.T) {
	member := func(id uint64, self, connected, learner bool) survey.Member {
		return survey.Member{NodeID: id, Self: self, Connected: connected, Learner: learner}
	}
	self := member(1, true, true, false)
	for _, tc := range []struct {
		role    string
		members []survey.Member
		want    string
	}{
		{"leader", []survey.Member{self}, "Node 1 (leader) sends its clients away and ends. It is the only member: no timestamps and no IDs until it is started again."},
		{"leader", []survey.Member{self, member(2, false, true, false), member(3, false, true, false)}, "Node 1 (leader) sends its clients away and ends. Another node becomes the leader first."},
		{"follower", []survey.Member{self, member(2, false, true, false), member(3, false, true, false)}, "Node 1 (follower) sends its clients away and ends."},
		{"follower", []survey.Member{self, member(2, false, true, false), member(3, false, false, false), member(4, false, true, true)},
			"Node 1 (follower) sends its clients away and ends. It is connected to 1 other voters of 3, which are no quorum: no timestamps until it is started again."},
	} {
		s := &survey.State{Node: survey.Node{ID: 1, Role: tc.role}, Members: tc.members}
		if got := drainPlan(s); got != tc.want {
			t.Errorf("%q, want %q", got, tc.want)
		}
	}
	for _, tc := range []struct {
		args, want string
		code       int
	}{
		{"drain --endpoint ftp://x", "--endpoint", exitUsage},
		{"drain --yes --endpoint 127.0.0.1:1", "127.0.0.1:1", exitFailure},
	} {
		if code, _, text := command(strings.Fields(tc.args)...); code != tc.code || !strings.Contains(text, tc.want) {
			t.Errorf("%s: exit code %d, %s", tc.args, code, text)
		}
	}
}
