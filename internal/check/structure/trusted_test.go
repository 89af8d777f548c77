package structure_test

import (
	"go/scanner"
	"go/token"
	"os"
	"slices"
	"strings"
	"testing"
)

// promising are the packages that make the promise: a defect in one of them can issue a timestamp or an ID
// twice, or in the wrong order.
var promising = strings.Fields(`. snowflake disruptor
	internal/core/interval internal/core/timeline internal/core/session internal/core/frontier internal/core/oracle internal/core/redislock internal/core/route internal/core/replica internal/core/wire internal/core/journal
	internal/host/storage internal/host/backup internal/host/peer internal/host/steady internal/node`)

// carrying are the packages that carry answers: a defect can give one to the wrong request, in the wrong
// form, or from the wrong cluster.
var carrying = strings.Fields(`internal/core/search internal/reply client internal/front internal/front/head internal/front/gate
	internal/front/httpapi internal/front/grpc internal/front/http1 internal/front/http2 internal/front/resp internal/front/web internal/front/pd internal/front/thriftrpc
	internal/host/loop internal/host/secure internal/host/listen internal/proxy/forward`)

// supporting are the other packages that those import: at worst they refuse or are slow, given that rights and
// certificates are correct. Mutants are constants but in builds for their tests.
var supporting = strings.Fields(`internal/core/mutant internal/auth/address internal/auth/access internal/auth/certname internal/auth/credential internal/host/trace
	internal/host/telemetry internal/front/requestid internal/front/stats`)

// The most lines of code, without comments and tests; ARCHITECTURE.md says so, too.
const (
	promisingLinesMax = 22000
	carryingLinesMax  = 26800
)

// TestTrusted_ImportsOnlyWhatIsNamed: whatever can break the promise is on a list that people read.
func TestTrusted_ImportsOnlyWhatIsNamed(t *testing.T) {
	table := parseTable(t, dependencies)
	for set, allowed := range map[*[]string][]string{
		&promising: slices.Concat(promising, supporting, []string{"internal/front", "internal/host/loop", "internal/host/secure"}),
		&carrying:  slices.Concat(promising, carrying, supporting),
	} {
		for _, pkg := range *set {
			row, ok := table[pkg]
			if !ok {
				t.Errorf("%s has no line", pkg)
			}
			for _, imported := range row.ours {
				if !slices.Contains(allowed, imported) {
					t.Errorf("%s imports %s, which is on no list of what can break the promise", pkg, imported)
				}
			}
		}
	}
	architecture, err := os.ReadFile("ARCHITECTURE.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(architecture), "\n## What can break the promise\n")
	section, _, _ = strings.Cut(section, "\n## ")
	for _, pkg := range slices.Concat(promising, carrying) {
		if name := pkg[strings.LastIndex(pkg, "/")+1:]; pkg != "." && !strings.Contains(section, "`"+name+"`") {
			t.Errorf("ARCHITECTURE.md does not name %s among what can break the promise", pkg)
		}
	}
}

func TestTrusted_IsSmall(t *testing.T) {
	lines := map[string]int{}
	for _, src := range parseModule(t, token.NewFileSet()) {
		if !src.test {
			lines[src.pkg] += codeLines(t, src.path)
		}
	}
	for _, set := range []struct {
		what     string
		packages []string
		most     int
	}{
		{"make the promise", promising, promisingLinesMax},
		{"carry answers", carrying, carryingLinesMax},
	} {
		sum := 0
		for _, pkg := range set.packages {
			if lines[pkg] == 0 {
				t.Errorf("%s has no code", pkg)
			}
			sum += lines[pkg]
		}
		t.Logf("the packages that %s have %d lines of code", set.what, sum)
		if sum > set.most {
			t.Errorf("the packages that %s have %d lines of code, want at most %d", set.what, sum, set.most)
		}
	}
}

// codeLines returns how many lines of a file have code.
func codeLines(t *testing.T, path string) int {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var s scanner.Scanner
	file := token.NewFileSet().AddFile(path, -1, len(text))
	s.Init(file, text, nil, 0)
	has := map[int]bool{}
	for {
		at, tok, literal := s.Scan()
		if tok == token.EOF {
			return len(has)
		}
		if tok == token.SEMICOLON && literal == "\n" {
			continue // that the end of the line stands for
		}
		for i := range 1 + strings.Count(literal, "\n") {
			has[file.Line(at)+i] = true
		}
	}
}
