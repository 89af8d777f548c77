package main

import (
	"strings"
	"testing"

	"github.com/isotone/isotone/internal/check/await"
	"github.com/isotone/isotone/internal/host/config"
)

// TestThrift_OffOpensNoPort, by the flag as by the variable, and the doctor looks at none. What is neither off nor a port is refused.
func TestThrift_OffOpensNoPort(t *testing.T) {
	for _, args := range [][]string{{"serve", "--thrift-port", "off"}, {"serve"}} {
		var log syncBuffer
		cmd := reexec(t, []string{"HTTP_HOST=127.0.0.1", "HTTP_PORT=0", "RAFT_ADDR=127.0.0.1:0", "DATA_DIR=data"}, args...)
		if len(args) == 1 {
			cmd.Env = append(cmd.Env, "THRIFT_PORT=off")
		}
		cmd.Dir, cmd.Stdout, cmd.Stderr = t.TempDir(), &log, &log
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		await.Done(t, await.Timeout, func() (bool, string) { return strings.Contains(log.String(), `"serving"`), log.String() })
		if text := log.String(); strings.Contains(strings.ToLower(text), "thrift") {
			t.Errorf("%q: %s", args, text)
		}
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}
	wantRun(t, 2, "", `= "x": want off, or a whole number from 0 to 65535`, "serve", "--thrift-port", "x")
	s := config.Default()
	s.ThriftPort, s.DataDir = config.PortOff, t.TempDir()
	for _, l := range describeMachine(&s).Listen {
		if l.Setting == "THRIFT_PORT" {
			t.Errorf("%+v", l)
		}
	}
}
