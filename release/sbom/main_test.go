package main

import (
	"bytes"
	"encoding/json"
	"os"
	"regexp"
	"runtime/debug"
	"slices"
	"strings"
	"testing"
)

// The binary of this test has few modules or none, so the rest is made up.
var sample = &debug.BuildInfo{
	GoVersion: "go1.26.8 X:experiment",
	Main:      debug.Module{Path: "github.com/isotone/isotone", Version: "(devel)"},
	Deps: []*debug.Module{
		{Path: "go.etcd.io/bbolt", Version: "v1.5.0", Sum: "h1:abc="},
		{Path: "example.com/old", Version: "v2.0.0+incompatible"},
		{Path: "example.com/replaced", Version: "v1.0.0", Replace: &debug.Module{Path: "example.com/fork", Version: "v1.0.1", Sum: "h1:def="}},
	},
	Settings: []debug.BuildSetting{{Key: "GOOS", Value: "linux"}, {Key: "vcs.time", Value: "2026-01-01T00:00:00Z"}},
}

// TestBill_HasWhatTheSchemaRequires of https://cyclonedx.org/schema/bom-1.6.schema.json, and its
// patterns for what is there.
func TestBill_HasWhatTheSchemaRequires(t *testing.T) {
	b, err := newBill(sample, "v1.2.3", "isotone_v1.2.3_linux_amd64", [32]byte{1, 2, 3})
	if err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(b)
	if err != nil {
		t.Fatal(err)
	}
	var top map[string]any
	if err := json.Unmarshal(text, &top); err != nil {
		t.Fatal(err)
	}
	if top["bomFormat"] != "CycloneDX" || top["specVersion"] != "1.6" || top["version"] != 1.0 ||
		!regexp.MustCompile(`^urn:uuid:[0-9a-f]{8}-[0-9a-f]{4}-8[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$`).MatchString(b.SerialNumber) {
		t.Errorf("the head of %s", text)
	}
	known := []string{"$schema", "bomFormat", "specVersion", "serialNumber", "version", "metadata", "components", "dependencies"}
	for name := range top {
		if !slices.Contains(known, name) {
			t.Errorf("no field of the schema is called %s", name)
		}
	}
	refs := map[string]bool{}
	for _, c := range append([]component{b.Metadata.Component}, b.Components...) {
		if c.Type != "application" && c.Type != "library" || c.Name == "" || c.Ref == "" || refs[c.Ref] || !strings.HasPrefix(c.PURL, "pkg:golang/") {
			t.Errorf("component %+v", c)
		}
		for _, h := range c.Hashes {
			if h.Alg != "SHA-256" || !regexp.MustCompile(`^[0-9a-f]{64}$`).MatchString(h.Content) {
				t.Errorf("hash %+v", h)
			}
		}
		refs[c.Ref] = true
	}
	for _, d := range b.Dependencies {
		for _, ref := range append(d.DependsOn, d.Ref) {
			if !refs[ref] {
				t.Errorf("%s is no component", ref)
			}
		}
	}
	if strings.Contains(string(text), "2026-01-01") {
		t.Error("it has a time")
	}
}

func TestBill_NamesEveryModule(t *testing.T) {
	b, err := newBill(sample, "v1.2.3", "x", [32]byte{})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, c := range b.Components {
		got = append(got, c.PURL)
	}
	want := []string{
		"pkg:golang/std@1.26.8", "pkg:golang/go.etcd.io/bbolt@v1.5.0", "pkg:golang/example.com/old@v2.0.0%2Bincompatible", "pkg:golang/example.com/fork@v1.0.1",
	}
	if !slices.Equal(got, want) || b.Components[1].Properties[0].Value != "h1:abc=" || len(b.Dependencies[0].DependsOn) != len(want) {
		t.Errorf("%q, %+v", got, b)
	}
}

func TestRun_ReadsABinary(t *testing.T) {
	path, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	var first, second bytes.Buffer
	for _, out := range []*bytes.Buffer{&first, &second} {
		if err := run("v1.2.3", path, out); err != nil {
			t.Fatal(err)
		}
	}
	if first.String() != second.String() || !strings.Contains(first.String(), `"purl": "pkg:golang/github.com/isotone/isotone@v1.2.3"`) {
		t.Errorf("%s\n%s", &first, &second)
	}
	if err := run("v1.2.3", "main.go", &first); err == nil {
		t.Error("a file that is no binary has a bill")
	}
}
