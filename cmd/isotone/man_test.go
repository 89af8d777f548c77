package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

func TestMan_HasAPageForEachCommandWithAllItsFlags(t *testing.T) {
	dir := t.TempDir()
	if code, _, err := command("man", "--dir", dir); code != 0 {
		t.Fatal(err)
	}
	pages := map[string]string{}
	files, _ := filepath.Glob(filepath.Join(dir, "*.1"))
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		pages[strings.TrimSuffix(filepath.Base(file), ".1")] = string(text)
	}
	for page, wants := range map[string][]string{
		"isotone":         {".TH ISOTONE 1 ", `.BR isotone\-serve (1)`, "EXIT STATUS", "/etc/isotone/isotone.env"},
		"isotone-serve":   {`.TH ISOTONE\-SERVE 1 `, ".B isotone serve\n[flags]", `\fB\-\-node\-id\fR\fI=`, "($NODE_ID)"},
		"isotone-member":  {".B isotone member add\n<id> <peer\\-addr>", ".SS \"isotone member replace\"", `\fB\-y, \-\-yes\fR`},
		"isotone-version": {`\fB\-\-json\fR`},
		"isotone-proxy":   {`\fB\-\-[no\-]ids\fR`},
	} {
		for _, want := range wants {
			if !strings.Contains(pages[page], want) {
				t.Errorf("%s(1) does not have %q:\n%.3000s", page, want, pages[page])
			}
		}
	}
	for page, text := range pages {
		if strings.Contains(text, "fault\\-clock") || pages["isotone-man"] != "" {
			t.Errorf("%s(1) shows what help hides", page)
		}
	}
}

func TestMan_WantsADirectory(t *testing.T) {
	for want, args := range map[int][]string{exitUsage: {"man"}, exitFailure: {"man", "--dir", filepath.Join(t.TempDir(), "none")}} {
		if code, _, err := command(args...); code != want || err == "" {
			t.Errorf("%q: exit code %d, %s", args, code, err)
		}
	}
}

func TestMan_TextStandsForItself(t *testing.T) {
	for text, want := range map[string]string{
		".hidden": `\&.hidden`, "-x": `\-x`, `a\b`: `a\eb`, "'q'": `\(aqq\(aq`, "~/.x": `\(ti/.x`, "1…n": `1\&...n`,
	} {
		if got := roff(text); got != want {
			t.Errorf("%q: got %q, want %q", text, got, want)
		}
	}
}

func TestMan_PagesHaveNoFaults(t *testing.T) {
	mandoc, err := exec.LookPath("mandoc")
	if err != nil {
		t.Skip("mandoc is not installed")
	}
	dir := t.TempDir()
	if code, _, err := command("man", "--dir", dir); code != 0 {
		t.Fatal(err)
	}
	files, _ := filepath.Glob(filepath.Join(dir, "*.1"))
	out, _ := exec.Command(mandoc, append([]string{"-T", "lint", "-W", "warning"}, files...)...).CombinedOutput()
	for line := range strings.Lines(string(out)) {
		if !strings.Contains(line, "missing date") { // a test has no commit
			t.Error(line)
		}
	}
}
