package main

import (
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/isotone/isotone/internal/check/await"
)

// limitedFiles is the limit of open files of the node in the test below, and spareFiles what the
// test opens beyond it.
const (
	limitedFiles = 120
	spareFiles   = 40
)

// TestFiles_ANodeWithoutAnyGoesOn: a real process, all of whose descriptors are taken by idle
// connections to its four ports, goes on to answer those that it has, uses little time, complains
// once for each port, and accepts again when there are descriptors.
func TestFiles_ANodeWithoutAnyGoesOn(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("starts a process")
	}
	ports := freeAddrs(t, 4)
	client, peer, thrift, admin := ports[0], ports[1], ports[2], ports[3]
	var log syncBuffer
	cmd := reexec(t, []string{
		"HTTP_HOST=127.0.0.1", "HTTP_PORT=" + fmt.Sprint(portOf(t, client)), "RAFT_ADDR=" + peer, "THRIFT_PORT=" + fmt.Sprint(portOf(t, thrift)),
		"ADMIN_ADDR=" + admin, "DATA_DIR=data", "GOMAXPROCS=2",
	}, "serve")
	// A shell lowers the limit, and becomes the node.
	cmd.Args = append([]string{"sh", "-c", fmt.Sprintf(`ulimit -n %d && exec "$0" "$@"`, limitedFiles), cmd.Path}, cmd.Args[1:]...)
	cmd.Path = "/bin/sh"
	cmd.Stdout, cmd.Stderr = &log, &log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		if err := cmd.Wait(); err != nil {
			t.Errorf("the node: %v\n%s", err, log.String())
		}
	}()
	kept := newKept(t, client)
	await.Done(t, await.Timeout, func() (bool, string) {
		return strings.Contains(log.String(), `"connections":`) && strings.Contains(log.String(), "raise LimitNOFILE="), "the bound by open files is not reported: " + log.String()
	})

	var idle []net.Conn
	defer func() { closeIdle(idle) }()
	for range limitedFiles/4 + spareFiles { // each port has a limit below that of files
		for _, addr := range ports {
			if c, err := net.DialTimeout("tcp", addr, time.Second); err == nil {
				idle = append(idle, c)
			}
		}
	}
	failures := func() int { return strings.Count(log.String(), "cannot be accepted") }
	await.Done(t, await.Timeout, func() (bool, string) { return failures() > 0, "no port lacks descriptors: " + log.String() })
	before, began := processTime(t, cmd.Process.Pid), time.Now()
	for time.Since(began) < 3*time.Second {
		kept.ask()
		time.Sleep(50 * time.Millisecond)
	}
	if used, wall := processTime(t, cmd.Process.Pid)-before, time.Since(began); used > wall/2 {
		t.Errorf("a node without descriptors uses %v of processor time in %v", used, wall)
	}
	if n := failures(); n > len(ports) {
		t.Errorf("%d complaints within seconds about %d ports:\n%s", n, len(ports), log.String())
	}

	closeIdle(idle)
	idle = nil
	for range 3 {
		newKept(t, client).ask()
	}
	for _, addr := range []string{client, admin} {
		await.Done(t, await.Timeout, func() (bool, string) {
			again, err := net.DialTimeout("tcp", addr, time.Second)
			if err != nil {
				return false, err.Error()
			}
			defer again.Close()
			_ = again.SetDeadline(time.Now().Add(time.Second))
			_, _ = io.WriteString(again, "GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
			page, _ := io.ReadAll(again)
			return strings.Contains(string(page), "\nisotone_client_connections_limit{port=\"client\"} 72\n"), addr + " does not serve again: " + string(page)
		})
	}
	kept.ask()
}

func closeIdle(idle []net.Conn) {
	for _, c := range idle {
		_ = c.Close()
	}
}

// processTime returns the processor time that a process has used.
func processTime(t *testing.T, pid int) time.Duration {
	t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		t.Fatal(err)
	}
	fields := strings.Fields(string(b[strings.LastIndexByte(string(b), ')')+1:]))
	ticks := 0
	for _, field := range fields[11:13] { // utime and stime
		n, err := strconv.Atoi(field)
		if err != nil {
			t.Fatal(err)
		}
		ticks += n
	}
	return time.Duration(ticks) * 10 * time.Millisecond // USER_HZ is 100
}
