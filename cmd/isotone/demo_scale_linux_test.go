package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/isotone/isotone/internal/check/await"
	"github.com/isotone/isotone/internal/check/demoscale"
)

func TestDemoScale_RefusesBadSettings(t *testing.T) {
	for args, want := range map[string]string{
		"--act 1,x":                   `--act "1,x": want numbers from 1 to 5`,
		"--act 6,2,2 --sleep 1h":      "--sleep 1h0m0s: want 1ms to 10s; --act 6: want 1 to 5; --act 2: named twice",
		"--duration 1s":               "--duration 1s: want 2s to 30m0s",
		"--svg /none/picture.svg":     "--svg",
		"--act 1 --duration 1s extra": "extra",
	} {
		code, _, stderr := command(append([]string{"demo", "scale"}, strings.Fields(args)...)...)
		if code != exitUsage || !strings.Contains(stderr, want) {
			t.Errorf("%s: exit code %d, %s", args, code, stderr)
		}
	}
}

func TestDemoScale_WritesJSONAndPicture(t *testing.T) {
	svg := filepath.Join(t.TempDir(), "picture.svg")
	code, out, stderr := command("demo", "scale", "--act", "1", "--duration", "2s", "--json", "--svg", svg)
	var r demoscale.ScaleResult
	if err := json.Unmarshal([]byte(out), &r); err != nil || code != 0 {
		t.Fatalf("exit code %d, %v\n%s%s", code, err, out, stderr)
	}
	if r.Schema != demoscale.ScaleSchema || !r.Verdict.OK || len(r.Acts) != 1 || len(r.Acts[0].Runs) != 2 {
		t.Errorf("%+v", r)
	}
	for _, want := range []string{"act 1, run 2 of 2", "Act 1: An echo", "10 clients │"} {
		if !strings.Contains(stderr, want) || strings.Contains(stderr, "\x1b") {
			t.Errorf("%q is missing, or there are control sequences, in:\n%s", want, stderr)
		}
	}
	if got, err := os.ReadFile(svg); err != nil || string(got) != r.Picture() {
		t.Errorf("the picture: %v, %d bytes", err, len(got))
	}
}

func TestDemoScale_CtrlCPrintsWhatThereIs(t *testing.T) {
	t.Parallel()
	cmd := reexec(t, nil, "demo", "scale", "--act", "1,3", "--json")
	errs, err := os.Create(filepath.Join(t.TempDir(), "errors"))
	if err != nil {
		t.Fatal(err)
	}
	defer errs.Close()
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, errs
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	await.Until(t, "the first run is over", func() bool {
		shown, _ := os.ReadFile(errs.Name())
		return strings.Contains(string(shown), "act 1, run 2")
	})
	if err := cmd.Process.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
	var r demoscale.ScaleResult
	if err := json.Unmarshal(out.Bytes(), &r); err != nil || !r.Interrupted || len(r.Acts) == 0 || !r.Verdict.OK {
		t.Errorf("%v\n%s", err, out.String())
	}
}
