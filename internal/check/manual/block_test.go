package manual_test

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// root is the root of the repository.
const root = "../../.."

// elsewhere are the files whose blocks other tests run, with the name of the test.
var elsewhere = map[string]string{
	"docs/operations.md": "TestOperations",
}

// verified is a mark of a block that release/check.sh runs.
const verified = "<!-- verify -->"

// block is one shell block of a Markdown file.
type block struct {
	file   string // from the root of the repository
	line   int    // of its first line of shell, from 1
	text   string
	notRun string // the reason, or ""
	run    string // the remark of a mark "run", or ""
	before []string
	prints []string
	marked bool // with "verify"
}

// mark is a comment that says something about the next block. Other comments are none.
var mark = regexp.MustCompile(`^<!-- (not run|run|before|prints): ?(.*?) ?-->$`)

// readBlocks returns the shell blocks of a file, and what is wrong with their marks.
func readBlocks(file, text string) (blocks []*block, faults []string) {
	next := &block{}
	marks := 0 // lines of marks before the current line
	var fence string
	for i, line := range strings.Split(text, "\n") {
		number := i + 1
		fault := func(format string, args ...any) {
			faults = append(faults, fmt.Sprintf("%s:%d: ", file, number)+fmt.Sprintf(format, args...))
		}
		if fence != "" {
			if strings.TrimSpace(line) == strings.TrimSpace(fence) {
				fence = ""
			} else if next.line > 0 {
				next.text += line + "\n"
			}
			if fence == "" && next.line > 0 {
				blocks = append(blocks, next)
				next = &block{}
			}
			continue
		}
		trimmed := strings.TrimSpace(line)
		language, isFence := strings.CutPrefix(trimmed, "```")
		found := mark.FindStringSubmatch(line)
		switch {
		case isFence:
			fence = "```"
			if language == "sh" {
				next.file, next.line = file, number+1
				break
			}
			if language == "bash" || language == "shell" || language == "console" {
				fault("shell blocks begin with ```sh, so that they are run")
			}
			if marks > 0 {
				fault("the mark before this block is for shell blocks")
			}
			next = &block{}
		case found != nil:
			next.set(found[1], found[2], fault)
			marks++
			continue
		case line == verified:
			next.marked = true
			marks++
			continue
		case marks > 0:
			fault("a mark belongs directly before a shell block")
			next = &block{}
		}
		marks = 0
	}
	return blocks, faults
}

// set takes over one mark.
func (b *block) set(kind, value string, fault func(format string, args ...any)) {
	if value == "" {
		fault("the mark %q says nothing", kind)
	}
	switch kind {
	case "not run":
		b.notRun = value
	case "run":
		b.run = value
	case "before":
		b.before = append(b.before, value)
	case "prints":
		b.prints = strings.Split(value, "…")
	}
	if b.notRun != "" && (b.run != "" || b.before != nil || b.prints != nil) {
		fault("a block that is not run needs no other mark")
	}
}

// readManual returns the blocks of all Markdown files of the repository, by file.
func readManual(t *testing.T) map[string][]*block {
	t.Helper()
	all := map[string][]*block{}
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name := entry.Name()
		if entry.IsDir() {
			if path != root && (strings.HasPrefix(name, ".") || strings.HasPrefix(name, "_") || name == "node_modules") {
				return filepath.SkipDir
			}
			return nil
		}
		if filepath.Ext(name) != ".md" {
			return nil
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		file := filepath.ToSlash(strings.TrimPrefix(path, root+string(filepath.Separator)))
		blocks, faults := readBlocks(file, string(text))
		for _, fault := range faults {
			if elsewhere[file] == "" {
				t.Error(fault)
			}
		}
		all[file] = blocks
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// TestReadBlocks_FindsBlocksAndMarks has one file with everything.
func TestReadBlocks_FindsBlocksAndMarks(t *testing.T) {
	text, err := os.ReadFile("testdata/blocks.txt")
	if err != nil {
		t.Fatal(err)
	}
	blocks, faults := readBlocks("blocks.md", string(text))
	var got []string
	for _, b := range blocks {
		got = append(got, fmt.Sprintf("%d %q not run %q run %q before %q prints %q", b.line, b.text, b.notRun, b.run, b.before, b.prints))
	}
	got = append(got, faults...)
	want, err := os.ReadFile("testdata/blocks.want")
	if err != nil {
		t.Fatal(err)
	}
	if strings.Join(got, "\n") != strings.TrimSpace(string(want)) {
		t.Errorf("got:\n%s\nwant:\n%s", strings.Join(got, "\n"), want)
	}
}
