package main

import (
	"bytes"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

// sampleDev is what "isotone dev --interval-ms 100" shows in the directory of the module.
func sampleDev() *devView {
	return &devView{
		Dir: "/tmp/isotone-dev-1", Leader: "127.0.0.1:8081", Thrift: "127.0.0.1:7609", Intervals: true, Source: true, Own: "go run ./cmd/isotone",
		Nodes: []devNode{
			{1, "127.0.0.1:8081", "127.0.0.1:40001", "leader"},
			{2, "127.0.0.1:8082", "127.0.0.1:40002", "follower"},
			{3, "127.0.0.1:8083", "127.0.0.1:40003", "follower"},
		},
	}
}

func devText(t *testing.T, v *devView, color bool) string {
	t.Helper()
	var b bytes.Buffer
	if err := v.write(&b, color); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func TestDevText_IsAlignedAndHasWhatRuns(t *testing.T) {
	text := devText(t, sampleDev(), false)
	if *update {
		if err := os.WriteFile("testdata/dev.txt", []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	golden, err := os.ReadFile("testdata/dev.txt")
	if err != nil || text != string(golden) {
		t.Errorf("testdata/dev.txt (%v) differs from:\n%s", err, text)
	}
	at := map[int]int{}
	for _, command := range devCommands(t, text) {
		for line := range strings.Lines(text) {
			if strings.HasSuffix(line, "   "+command+"\n") {
				at[strings.LastIndex(line, "   "+command)]++
			}
		}
	}
	if len(at) != 1 {
		t.Errorf("commands begin in columns %v", at)
	}
	bare := sampleDev()
	bare.Thrift, bare.Intervals, bare.Source = "", false, false
	for _, not := range []string{"interval", "Thrift", "go run ./bench", "examples"} {
		if strings.Contains(devText(t, bare, false), not) {
			t.Errorf("the text has %q where it does not work", not)
		}
	}
	bare.Live = []string{"votes"}
	if text := devText(t, bare, false); !strings.Contains(text, "curl --compressed 127.0.0.1:8082/live/votes\n") {
		t.Errorf("the document that was given is missing in:\n%s", text)
	}
	if colors := devText(t, sampleDev(), true); !strings.Contains(colors, "\x1b[36mcurl") || strings.Contains(text, "\x1b") {
		t.Errorf("colours: %q", colors)
	}
}

func TestColored_IsForTerminalsOnly(t *testing.T) {
	t.Setenv("NO_COLOR", "")
	t.Setenv("TERM", "xterm")
	if colored(new(bytes.Buffer)) {
		t.Error("a buffer has colours")
	}
	terminal, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	if err != nil {
		t.Skipf("no pseudo terminal here: %v", err)
	}
	defer terminal.Close()
	if !colored(terminal) {
		t.Error("a terminal has no colours")
	}
	t.Setenv("TERM", "dumb")
	if colored(terminal) {
		t.Error("a dumb terminal has colours")
	}
	t.Setenv("TERM", "xterm")
	t.Setenv("NO_COLOR", "1")
	if colored(terminal) {
		t.Error("NO_COLOR has no effect")
	}
}

// devCommands returns the commands in the text of "isotone dev".
func devCommands(t *testing.T, text string) []string {
	t.Helper()
	var commands []string
	_, rest, _ := strings.Cut(text, "in another terminal:\n")
	for line := range strings.Lines(rest) {
		if !strings.HasPrefix(line, "  ") {
			continue
		}
		_, command, ok := strings.Cut(strings.TrimSpace(line), "   ")
		if !ok {
			t.Fatalf("no command in %q", line)
		}
		commands = append(commands, strings.TrimSpace(command))
	}
	if len(commands) < 8 {
		t.Fatalf("only %d commands in:\n%s", len(commands), text)
	}
	return commands
}

func TestBrowser_HasACommandForEachSystem(t *testing.T) {
	for goos, want := range map[string]string{
		"linux": "xdg-open", "freebsd": "xdg-open", "darwin": "open", "windows": "rundll32",
	} {
		if command := browserCommand(goos, "http://x/"); command[0] != want || command[len(command)-1] != "http://x/" {
			t.Errorf("%s: %q", goos, command)
		}
	}
}

func TestBrowser_SaysWhatToDoWithoutOne(t *testing.T) {
	bin := t.TempDir()
	t.Setenv("PATH", bin)
	if err := openBrowser("http://x/"); err == nil || !strings.Contains(err.Error(), "open http://x/ yourself") {
		t.Error(err)
	}
	if runtime.GOOS == "windows" {
		t.Skip("a script is no program there")
	}
	opener := filepath.Join(bin, browserCommand(runtime.GOOS, "")[0])
	if err := os.WriteFile(opener, []byte("#!/bin/sh\nexit 3\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := openBrowser("http://x/"); err == nil || !strings.Contains(err.Error(), "found no browser") {
		t.Error(err)
	}
}
