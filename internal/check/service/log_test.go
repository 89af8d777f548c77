//go:build linux

package service_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/isotone/isotone/internal/check/await"
	"github.com/isotone/isotone/internal/check/chaos"
	"github.com/isotone/isotone/internal/check/trial"
)

// TestLog_NobodyReadsIt: a pager that waits, a terminal after Ctrl-S, or a collector that
// hangs must not stop a node or keep it from ending.
func TestLog_NobodyReadsIt(t *testing.T) {
	t.Parallel()
	testUnreadLog(t, func(*os.File) {})
}

// TestLog_ItsReaderEnds: the node must go on.
func TestLog_ItsReaderEnds(t *testing.T) {
	t.Parallel()
	testUnreadLog(t, func(r *os.File) { r.Close() })
}

// testUnreadLog reads the log of a node until the node serves, calls leave, and reads no more.
func testUnreadLog(t *testing.T, leave func(reader *os.File)) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	cmd := exec.CommandContext(t.Context(), trial.Binary, "serve")
	cmd.Env = []string{"DATA_DIR=" + t.TempDir(), "HTTP_PORT=0", "RAFT_ADDR=127.0.0.1:0", "THRIFT_PORT=0", "REQUEST_STATS=1"}
	cmd.Stderr = w
	err = cmd.Start()
	w.Close()
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()

	var line struct{ Msg, HTTP string }
	for in := bufio.NewScanner(r); line.Msg != "serving" && in.Scan(); {
		if err := json.Unmarshal(in.Bytes(), &line); err != nil {
			t.Fatalf("%v: %s", err, in.Text())
		}
	}
	leave(r)
	addr := "127.0.0.1:" + line.HTTP[strings.LastIndexByte(line.HTTP, ':')+1:]
	c, err := chaos.Dial(addr, trial.AnswerTimeout)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	// Each answer has a line of some 300 bytes, and the pipe and the log have room for
	// little more than a megabyte.
	dropped := 0.0
	for n := 0; n < 20_000 && dropped == 0; n++ {
		if a, err := c.Get("/timestamp", trial.AnswerTimeout); err != nil || a.Status != 200 && a.Status != 503 {
			t.Fatalf("request %d: %v, %v", n, a, err)
		}
		if n%500 == 0 {
			if dropped, err = chaos.Metric(addr, "isotone_log_lines_dropped_total"); err != nil {
				t.Fatal(err)
			}
		}
	}
	if dropped == 0 {
		t.Error("no line was dropped; is the log read?")
	}
	await.Done(t, chaos.ReadyTimeout, func() (bool, string) { // on a slow disk it may not lead yet
		a, err := c.Get("/timestamp", trial.AnswerTimeout)
		return err == nil && a.Status == 200, fmt.Sprintf("in the end: %v, %v", a, err)
	})
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := await.Receive(t, "the end of the process", ended); err != nil {
		t.Error(err)
	}
}
