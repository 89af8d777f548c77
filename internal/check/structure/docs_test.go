package structure_test

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
)

// The most pages and lines in docs, so that each fact is told once.
const (
	docsPagesMax = 30
	docsLinesMax = 7000
)

// TestDocs_AreShort keeps the pages from growing again.
func TestDocs_AreShort(t *testing.T) {
	pages, err := filepath.Glob("docs/*.md")
	if err != nil {
		t.Fatal(err)
	}
	lines := 0
	for _, page := range pages {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		lines += bytes.Count(text, []byte("\n"))
	}
	if len(pages) == 0 || len(pages) > docsPagesMax || lines > docsLinesMax {
		t.Errorf("docs has %d pages and %d lines, at most %d and %d: look for what is told twice", len(pages), lines, docsPagesMax, docsLinesMax)
	}
}
