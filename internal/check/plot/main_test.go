package main

import (
	"os"
	"strings"
	"testing"
)

const root = "../.."

// TestPlots_AreDrawnFromTheTables fails when a table has changed and its picture has not.
func TestPlots_AreDrawnFromTheTables(t *testing.T) {
	for _, p := range plots {
		want, err := p.draw(root)
		if err != nil {
			t.Error(err)
			continue
		}
		if got, err := os.ReadFile(p.picture(root)); err != nil || string(got) != want {
			t.Errorf("%s differs from the table in %s (%v): go run ./internal/check/plot", p.picture(root), p.file, err)
		}
	}
}

func TestRead_TakesWhatTheTableHas(t *testing.T) {
	p := plot{file: "main_test.txt", header: "| what | n |", group: "n", series: []series{{"a", "req/s", "a", "a"}, {"b", "req/s", "b", "b"}}}
	dir := t.TempDir()
	text := "text\n\n| what | n | req/s |\n|---|---:|---:|\n| a, the first | 1 | 1,000 |\n| b | 1 | 20 |\n| a | 8 | 3 |\n\nmore\n"
	if err := os.WriteFile(dir+"/main_test.txt", []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	groups, err := p.read(dir)
	if err != nil || len(groups) != 2 || groups[0].label != "1" || groups[0].values[0] != 1000 || groups[0].values[1] != 20 || groups[1].texts[0] != "3" || groups[1].values[1] != 0 {
		t.Errorf("%+v, %v", groups, err)
	}
	p.series[0].column = "none"
	if _, err := p.read(dir); err == nil || !strings.Contains(err.Error(), `no column "none"`) {
		t.Error(err)
	}
	p.header = "| other |"
	if _, err := p.read(dir); err == nil || !strings.Contains(err.Error(), "has no table") {
		t.Error(err)
	}
}
