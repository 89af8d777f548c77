package main

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/isotone/isotone/internal/check/await"
	"github.com/isotone/isotone/internal/check/ports"
	"github.com/isotone/isotone/internal/check/rig"
	"github.com/isotone/isotone/internal/host/config"
	"github.com/isotone/isotone/internal/operator"
)

// TestDev_EveryCommandOfItsTextWorks reads the commands from the text, and runs them with a shell
// beside the nodes, as a reader does.
func TestDev_EveryCommandOfItsTextWorks(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("-short is for the race detector, and this starts some sixty processes; go test without -short runs it")
	}
	sh, err := exec.LookPath("sh")
	if err != nil {
		t.Skip("sh is missing")
	}
	document := filepath.Join(t.TempDir(), "votes.json")
	if err := os.WriteFile(document, []byte(`{"ada":1}`), 0o600); err != nil {
		t.Fatal(err)
	}
	s := devSettings(t, devCmd{IntervalMS: 100, Forward: true, Live: "votes=file:" + document})
	members := startThreeWith(t, s)
	view := viewDev(members, t.TempDir(), &s)
	view.Own, view.Source = "isotone", true
	bin := t.TempDir()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	script := "#!/bin/sh\n" + asCommand + "=1 exec '" + self + "' \"$@\"\n"
	if err := os.WriteFile(filepath.Join(bin, "isotone"), []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	text := devText(t, view, false)
	// They name node 1, and are answered whichever node leads.
	await.Until(t, "node 1 does not lead any more", func() bool {
		_ = members[0].Node.TransferLeadership(t.Context())
		s := members[0].Node.Status()
		return s.Leader != 0 && s.Leader != 1
	})
	await.Until(t, "all is as it was before", func() bool {
		code, _, _ := command("status", members[0].Addr)
		return code == 0
	})
	// Parallel subtests end before the nodes, whose cleanup runs after this group.
	t.Run("commands", func(t *testing.T) {
		for _, command := range devCommands(t, text) {
			t.Run(command, func(t *testing.T) {
				t.Parallel()
				runDevCommand(t, sh, bin, command)
			})
		}
	})
}

func devSettings(t *testing.T, c devCmd) config.Settings {
	t.Helper()
	s, err := c.settings()
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// TestDev_ServesLiveDocuments from every node.
func TestDev_ServesLiveDocuments(t *testing.T) {
	file := filepath.Join(t.TempDir(), "votes.json")
	if err := os.WriteFile(file, []byte(`{"ada":1}`), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, m := range startThreeWith(t, devSettings(t, devCmd{Live: "votes=file:" + file})) {
		await.Until(t, "the document is served", func() bool {
			status, body := rig.Fetch(t, "http://"+m.Addr+"/live/votes")
			return status == 200 && body == `{"ada":1}`
		})
	}
	wantRun(t, exitUsage, "", "--live: \"state\": this name is reserved", "dev", "--live", "state=file:"+file)
	wantRun(t, exitUsage, "", "--live", "dev", "--live", "votes")
}

// TestDev_SaysThatADocumentIsMissing, once, and when it is there; the nodes serve it then.
func TestDev_SaysThatADocumentIsMissing(t *testing.T) {
	t.Parallel()
	port, err := ports.Free(operator.DevNodes)
	if err != nil {
		t.Fatal(err)
	}
	file, seen := filepath.Join(t.TempDir(), "votes.json"), filepath.Join(t.TempDir(), "errors")
	cmd := reexec(t, nil, "dev", "--live", "votes=file:"+file, "--port", strconv.Itoa(port))
	errs, err := os.Create(seen)
	if err != nil {
		t.Fatal(err)
	}
	defer errs.Close()
	cmd.Stderr = errs
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	says := func(words ...string) {
		t.Helper()
		await.Done(t, await.Timeout, func() (bool, string) {
			b, err := os.ReadFile(seen)
			return err == nil && !slices.ContainsFunc(words, func(w string) bool { return strings.Count(string(b), w) != 1 }), string(b)
		})
	}
	says("live document cannot be loaded", file, "no such file", "answered with 503", "next_try_in=1s")
	if err := os.WriteFile(file, []byte(`{"ada":1}`), 0o600); err != nil {
		t.Fatal(err)
	}
	says("live document is loaded again")
	if err := cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
}

// runDevCommand runs one command of the text; it must succeed and print something.
func runDevCommand(t *testing.T, sh, bin, command string) {
	t.Helper()
	for _, part := range strings.Split(command, "|") {
		tool := strings.Fields(part)[0]
		if _, err := exec.LookPath(tool); err != nil && tool != "isotone" {
			t.Skipf("%s is missing", tool)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	command = soonDone(command)
	if dir, ok := strings.CutPrefix(command, "go run -C "); ok && os.Getenv("CI") == "" {
		needOtherModules(ctx, t, strings.Fields(dir)[0])
	}
	for { // A busy machine elects a leader now and then; its nodes say so, and ctx bounds how long that may take.
		cmd := exec.CommandContext(ctx, sh, "-c", command)
		cmd.Dir = filepath.Join("..", "..")
		cmd.Env = append(os.Environ(), "PATH="+bin+string(os.PathListSeparator)+os.Getenv("PATH"))
		cmd.WaitDelay = 5 * time.Second
		out, err := cmd.CombinedOutput()
		text := unhex(out)
		if ctx.Err() == nil && (strings.Contains(text, "no_leader") || strings.Contains(text, "waits for its first reservation")) {
			continue
		}
		if err != nil || len(out) == 0 || strings.Contains(text, `{"error"`) {
			t.Errorf("%v\n%s", err, out)
		}
		return
	}
}

// soonDone has commands that measure end when they have some answers: how many there are shows nothing here.
func soonDone(command string) string {
	for _, of := range []struct{ part, with string }{
		{" demo failover", " demo failover --kills 1 --every 1s --clients 3"}, // TestDemoFailover_KillsLeadersAndChecksAnswers ends more of them
		{" bench -t ", " bench --requests 2000 -t "},
		{"/bench/thrift -d 1s ", "/bench/thrift -d 200ms "},
		{"/bench/client ", "/bench/client -duration 200ms "},
		{" --duration 5s ", " --duration 1s "},
	} {
		command = strings.Replace(command, of.part, of.with, 1)
	}
	return command
}

// needOtherModules skips the test if what another Go module of the repository imports is not on this
// machine: go test ./... should need no network once the core is built.
func needOtherModules(ctx context.Context, t *testing.T, dir string) {
	t.Helper()
	list := exec.CommandContext(ctx, "go", "list", "-C", filepath.Join("..", "..", dir), "-deps", ".")
	list.Env = append(os.Environ(), "GOPROXY=off")
	if out, err := list.CombinedOutput(); err != nil {
		t.Skipf("the imports of %s are not all on this machine (with CI=true they are downloaded): %s", dir, out)
	}
}

// unhex returns what xxd -c 16 has printed without line breaks and hexadecimal digits, or other
// output as it is.
func unhex(out []byte) string {
	if !strings.HasPrefix(string(out), "00000000: ") {
		return string(out)
	}
	var text strings.Builder
	for line := range strings.Lines(string(out)) {
		_, part, _ := strings.Cut(strings.TrimSuffix(line, "\n"), "  ")
		text.WriteString(part)
	}
	return text.String()
}

// TestDev_OpensTheDashboardWhenItIsReady has a program in place of the browser's that notes the address.
func TestDev_OpensTheDashboardWhenItIsReady(t *testing.T) {
	t.Parallel()
	bin := t.TempDir()
	noted := filepath.Join(bin, "noted")
	script := "#!/bin/sh\necho \"$1\" >'" + noted + ".part'\nmv '" + noted + ".part' '" + noted + "'\n"
	if err := os.WriteFile(filepath.Join(bin, "xdg-open"), []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	port, err := ports.Free(operator.DevNodes)
	if err != nil {
		t.Fatal(err)
	}
	cmd := reexec(t, []string{"PATH=" + bin + string(os.PathListSeparator) + os.Getenv("PATH")}, "dev", "--open", "--port", strconv.Itoa(port))
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var url string
	await.Until(t, "the browser was opened", func() bool {
		b, err := os.ReadFile(noted)
		url = strings.TrimSpace(string(b))
		return err == nil
	})
	if !strings.HasPrefix(url, "http://127.0.0.1:") {
		t.Errorf("opened %q", url)
	}
	answer, err := http.Get(url + "ready")
	if err != nil {
		t.Fatal(err)
	}
	if answer.Body.Close(); answer.StatusCode != http.StatusOK {
		t.Errorf("opened before the nodes are ready: %s", answer.Status)
	}
	if err := cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil || !strings.Contains(out.String(), "The dashboard is at "+url) {
		t.Errorf("%v\n%s", err, out.String())
	}
}

// TestDev_RemovesItsDataWhenTheTerminalIsClosed as after Ctrl-C.
func TestDev_RemovesItsDataWhenTheTerminalIsClosed(t *testing.T) {
	t.Parallel()
	port, err := ports.Free(operator.DevNodes)
	if err != nil {
		t.Fatal(err)
	}
	temporary := t.TempDir()
	hangups := make(chan os.Signal, 1)
	signal.Notify(hangups, syscall.SIGHUP) // so that no process inherits that it is ignored, as under nohup
	defer signal.Stop(hangups)
	cmd := reexec(t, []string{"TMPDIR=" + temporary}, "dev", "--port", strconv.Itoa(port))
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(out, make([]byte, 20)); err != nil { // the text, which comes when the nodes are ready
		t.Fatal(err)
	}
	if err := cmd.Process.Signal(syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	_, _ = io.Copy(io.Discard, out)
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
	if left, err := os.ReadDir(temporary); err != nil || len(left) > 0 {
		t.Errorf("%v, %v", left, err)
	}
}

// TestDev_SaysWhyANodeCannotStart, and closes the ports of all of them.
func TestDev_SaysWhyANodeCannotStart(t *testing.T) {
	port, err := ports.Free(operator.DevNodes)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "node2"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for range 2 { // the second needs the ports of the first
		members, err := startDev(config.Default(), port, dir, slog.New(slog.DiscardHandler), nil)
		if err == nil || !strings.Contains(err.Error(), "node2") || len(members) != 0 {
			t.Errorf("%d members, %v", len(members), err)
		}
	}
}
