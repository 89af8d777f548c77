//go:build linux

package operation_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/isotone/isotone/internal/check/ports"
	"github.com/isotone/isotone/internal/check/trial"
)

// operationsFile is the runbook, whose commands are run here.
const operationsFile = "../../../docs/operations.md"

const (
	// sectionTimeout bounds one section.
	sectionTimeout = 5 * time.Minute
	// sectionPorts is how many ports a section uses, from BASE+1 on.
	sectionPorts = 10
)

// section is one section of the runbook.
type section struct {
	title string
	// after are the titles of the sections that come before it.
	after    []string
	commands []step
}

// step is what stands between two expectations.
type step struct {
	line int    // of its last line in the file
	text string // lines of shell
	// want is what the last line of text must print; "" if it may print anything.
	want string
}

// readRunbook returns the sections with commands.
func readRunbook(t *testing.T) map[string]*section {
	t.Helper()
	text, err := os.ReadFile(operationsFile)
	if err != nil {
		t.Fatal(err)
	}
	sections := map[string]*section{}
	current, inside := new(section), false
	for i, line := range strings.Split(string(text), "\n") {
		switch {
		case !inside && strings.HasPrefix(line, "## "):
			current = &section{title: strings.TrimPrefix(line, "## ")}
			sections[current.title] = current
		case !inside && strings.HasPrefix(line, "<!-- after: "):
			current.after = strings.Split(strings.TrimSuffix(strings.TrimPrefix(line, "<!-- after: "), " -->"), ", ")
		case line == "```sh":
			inside = true
		case inside && line == "```":
			inside = false
		case inside:
			current.add(i+1, line)
		}
	}
	return sections
}

// add adds one line of a block.
func (s *section) add(number int, line string) {
	last := len(s.commands) - 1
	if want, ok := strings.CutPrefix(line, "#>"); ok {
		s.commands[last].want = strings.TrimSpace(s.commands[last].want + " … " + want)
		return
	}
	if last >= 0 && s.commands[last].want == "" {
		s.commands[last].text += "\n" + line
		s.commands[last].line = number
		return
	}
	s.commands = append(s.commands, step{line: number, text: line})
}

// script returns the shell commands of sections. Before the output that is expected of a
// command, and after it, they print a mark.
func script(sections []*section) string {
	var b strings.Builder
	b.WriteString("set -eu\n")
	for _, s := range sections {
		for _, c := range s.commands {
			fmt.Fprintf(&b, "echo '@@ line %d'\n", c.line)
			lines := strings.Split(c.text, "\n")
			if c.want == "" {
				b.WriteString(c.text + "\n")
				continue
			}
			last := len(lines) - 1
			b.WriteString(strings.Join(lines[:last], "\n") + "\n")
			fmt.Fprintf(&b, "echo '@@ expect %d'\n{ %s\n} 2>&1\necho '@@ end %d'\n", c.line, lines[last], c.line)
		}
	}
	return b.String()
}

// printed returns the output of the command that begins at a line.
func printed(output string, line int) string {
	_, rest, _ := strings.Cut(output, fmt.Sprintf("@@ expect %d\n", line))
	text, _, _ := strings.Cut(rest, fmt.Sprintf("@@ end %d\n", line))
	return text
}

// matches reports whether output contains the parts of want between "…", in that order. The
// width of white space does not count.
func matches(output, want string) bool {
	output = strings.Join(strings.Fields(output), " ")
	for part := range strings.SplitSeq(want, "…") {
		part = strings.Join(strings.Fields(part), " ")
		at := strings.Index(output, part)
		if at < 0 {
			return false
		}
		output = output[at+len(part):]
	}
	return true
}

// waits has the sections that wait for tens of seconds. They begin first, the longest at the head.
var waits = map[string]int{"Restore": 2, "Certificates": 1}

// TestOperations runs the commands of the runbook, as they stand there, section by section.
func TestOperations(t *testing.T) {
	t.Parallel()
	sections := readRunbook(t)
	for _, title := range []string{"Install", "Size", "Form", "Grow", "Shrink", "Replace", "Move", "Drain", "Upgrade", "Leadership", "Workers", "Migrate", "Clocks", "Certificates", "Back up", "Restore", "Recover", "Disaster"} {
		if sections[title] == nil || len(sections[title].commands) == 0 {
			t.Errorf("%s has no section %q with commands", operationsFile, title)
		}
	}
	titles := slices.Sorted(maps.Keys(sections))
	slices.SortStableFunc(titles, func(a, b string) int { return waits[b] - waits[a] })
	for _, title := range titles {
		s := sections[title]
		if title == "Conventions" || len(s.commands) == 0 {
			continue
		}
		t.Run(title, func(t *testing.T) {
			t.Parallel()
			run := []*section{sections["Conventions"]}
			for _, before := range s.after {
				run = append(run, sections[before])
			}
			runSections(t, append(run, s))
		})
	}
}

var toolNames = regexp.MustCompile(`(?m)(?:^|[;|(] *|until )(curl|openssl)\b`)

func runSections(t *testing.T, sections []*section) {
	t.Helper()
	text := script(sections)
	for _, tool := range toolNames.FindAllStringSubmatch(text, -1) {
		if _, err := exec.LookPath(tool[1]); err != nil {
			t.Skip(err)
		}
	}
	base, err := ports.Free(sectionPorts + 1)
	if err != nil {
		t.Fatal(err)
	}
	dir := quickDir(t)
	ctx, cancel := context.WithTimeout(context.Background(), sectionTimeout)
	defer cancel()
	shell := exec.CommandContext(ctx, "sh")
	shell.Dir, shell.Stdin = dir, strings.NewReader(text)
	shell.Env = []string{"PATH=" + filepath.Dir(trial.Binary) + ":" + os.Getenv("PATH"), "HOME=" + dir, fmt.Sprintf("BASE=%d", base), "RTT_MS=50"} // no election because a busy machine holds up a leader
	out, err := os.Create(filepath.Join(dir, "output.txt"))
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	shell.Stdout, shell.Stderr = out, out
	// The nodes that it starts belong to its group.
	shell.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	shell.Cancel = func() error { return syscall.Kill(-shell.Process.Pid, syscall.SIGKILL) }
	if err := shell.Start(); err != nil {
		t.Fatal(err)
	}
	failed := shell.Wait()
	if err := syscall.Kill(-shell.Process.Pid, syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
		t.Error(err)
	}
	output, err := os.ReadFile(out.Name())
	if err != nil {
		t.Fatal(err)
	}
	if failed != nil {
		t.Fatalf("%v (%v):\n%s", failed, ctx.Err(), output)
	}
	for _, s := range sections {
		for _, c := range s.commands {
			if got := printed(string(output), c.line); c.want != "" && !matches(got, strings.TrimPrefix(c.want, "… ")) {
				t.Errorf("%s:%d, section %s: printed\n%s\nwant: %s", operationsFile, c.line, s.title, got, c.want)
			}
		}
	}
}

// TestRunbook_NoticesWhatIsWrong tests the tests: a command that fails, and one that prints
// something else.
func TestRunbook_NoticesWhatIsWrong(t *testing.T) {
	s := new(section)
	for i, line := range []string{"x=1", "echo one   two three", "#> one two", "#> three", "echo four"} {
		s.add(i+1, line)
	}
	if len(s.commands) != 2 || s.commands[0].text != "x=1\necho one   two three" || s.commands[1].text != "echo four" {
		t.Fatalf("%+v", s.commands)
	}
	shell := exec.Command("sh", "-c", script([]*section{s}))
	out, err := shell.CombinedOutput()
	if err != nil || strings.TrimSpace(printed(string(out), 2)) != "one two three" {
		t.Errorf("%v: %s", err, out)
	}
	for want, good := range map[string]bool{"one two … three": true, "one … three": true, "three … one": false, "four": false, "": true} {
		if matches(printed(string(out), 2), want) != good {
			t.Errorf("%q: want %v", want, good)
		}
	}
	s.add(6, "false")
	s.add(7, "echo not reached")
	s.add(8, "#> not reached")
	out, err = exec.Command("sh", "-c", script([]*section{s})).CombinedOutput()
	if err == nil || slices.Contains(strings.Split(string(out), "\n"), "not reached") {
		t.Errorf("%v: %s", err, out)
	}
}

// quickDir returns a directory in memory if there is one: the doctor of the runbook is right to complain about a disk that is
// slow because other tests write to it.
func quickDir(t *testing.T) string {
	dir, err := os.MkdirTemp("/dev/shm", "isotone-operations-")
	if err != nil {
		return t.TempDir()
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	return dir
}
