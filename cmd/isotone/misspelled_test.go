package main

import (
	"bufio"
	"os"
	"strings"
	"testing"
)

// TestMisspelled_VariablesAreNamed where they may be why a node does not start, by doctor, and in the log of a node.
func TestMisspelled_VariablesAreNamed(t *testing.T) {
	t.Setenv("PEER", "1=a:1,2=b:1")
	const says = "PEER is set, and is no setting; did you mean PEERS?"
	wantRun(t, exitUsage, "", says, "serve", "--node-id", "2", "--data-dir", t.TempDir())
	if _, out, _ := command("doctor", "--data-dir", t.TempDir(), "--http-port", "0"); !strings.Contains(out, says) {
		t.Errorf("doctor does not say it:\n%s", out)
	}
	cmd := reexec(t, []string{"PEER=1=a:1,2=b:1"}, "serve", "--http-host", "127.0.0.1", "--http-port", "0", "--raft-addr", "127.0.0.1:0", "--thrift-port", "off", "--data-dir", t.TempDir())
	log, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	found := false
	for lines := bufio.NewScanner(log); lines.Scan() && !found; {
		found = strings.Contains(lines.Text(), says)
	}
	if !found {
		t.Error("the log of the node does not say it")
	}
	_ = cmd.Process.Signal(os.Kill)
	_ = cmd.Wait()
}
