// Command sbom prints the software bill of materials of a release's binary, as CycloneDX 1.6 in
// JSON: the modules that are in it, by what the linker has recorded.
//
//	sbom VERSION BINARY
//
// The same binary gives the same bytes: there is no time in it, and the serial number follows from
// the binary. Of the tools that do this for Go modules, the usual one brings some thirty
// dependencies; what is needed of the format is a page.
package main

import (
	"crypto/sha256"
	"debug/buildinfo"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime/debug"
	"strings"
)

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: sbom VERSION BINARY")
		os.Exit(2)
	}
	if err := run(os.Args[1], os.Args[2], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "sbom:", err)
		os.Exit(1)
	}
}

// run writes the bill of the binary at path.
func run(version, path string, to io.Writer) error {
	info, err := buildinfo.ReadFile(path)
	if err != nil {
		return err
	}
	content, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	b, err := newBill(info, version, filepath.Base(path), sha256.Sum256(content))
	if err != nil {
		return err
	}
	out := json.NewEncoder(to)
	out.SetIndent("", "  ")
	out.SetEscapeHTML(false)
	return out.Encode(b)
}

// bill is a document of CycloneDX 1.6. Its fields are those of the schema.
type bill struct {
	Schema       string       `json:"$schema"`
	Format       string       `json:"bomFormat"`
	SpecVersion  string       `json:"specVersion"`
	SerialNumber string       `json:"serialNumber"`
	Version      int          `json:"version"`
	Metadata     metadata     `json:"metadata"`
	Components   []component  `json:"components"`
	Dependencies []dependency `json:"dependencies"`
}

type metadata struct {
	Component component `json:"component"`
}

type component struct {
	Type       string     `json:"type"`
	Ref        string     `json:"bom-ref"`
	Name       string     `json:"name"`
	Version    string     `json:"version"`
	Hashes     []hash     `json:"hashes,omitempty"`
	Licenses   []license  `json:"licenses,omitempty"`
	PURL       string     `json:"purl"`
	Properties []property `json:"properties,omitempty"`
}

type hash struct {
	Alg     string `json:"alg"`
	Content string `json:"content"`
}

type license struct {
	License struct {
		ID string `json:"id"`
	} `json:"license"`
}

type property struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

type dependency struct {
	Ref       string   `json:"ref"`
	DependsOn []string `json:"dependsOn"`
}

// newBill returns the bill of a binary with that name and digest. The linker records which modules
// are in it, not which of them needs which: all are dependencies of the binary.
func newBill(info *debug.BuildInfo, version, name string, digest [sha256.Size]byte) (*bill, error) {
	if info.Main.Path == "" {
		return nil, fmt.Errorf("%s has no main module", name)
	}
	root := module(debug.Module{Path: info.Main.Path, Version: version})
	root.Type, root.Name = "application", name
	root.Hashes = []hash{{"SHA-256", hex.EncodeToString(digest[:])}}
	root.Licenses = make([]license, 1)
	root.Licenses[0].License.ID = "Apache-2.0"
	for _, s := range info.Settings {
		switch s.Key {
		case "GOOS", "GOARCH", "CGO_ENABLED", "-trimpath":
			root.Properties = append(root.Properties, property{"go:" + s.Key, s.Value})
		}
	}
	b := &bill{
		Schema: "http://cyclonedx.org/schema/bom-1.6.schema.json", Format: "CycloneDX", SpecVersion: "1.6",
		SerialNumber: serial(digest), Version: 1, Metadata: metadata{root},
	}
	goVersion, _, _ := strings.Cut(strings.TrimPrefix(info.GoVersion, "go"), " ") // experiments follow
	needs := dependency{Ref: root.Ref}
	for _, m := range append([]*debug.Module{{Path: "std", Version: goVersion}}, info.Deps...) {
		if m.Replace != nil {
			m = m.Replace
		}
		c := module(*m)
		b.Components = append(b.Components, c)
		needs.DependsOn = append(needs.DependsOn, c.Ref)
	}
	b.Dependencies = []dependency{needs}
	for _, ref := range needs.DependsOn {
		b.Dependencies = append(b.Dependencies, dependency{Ref: ref, DependsOn: []string{}})
	}
	return b, nil
}

// module returns the component of a Go module. Its sum is that of go.sum, over the names and
// contents of its files, and so no hash that CycloneDX knows.
func module(m debug.Module) component {
	purl := "pkg:golang/" + m.Path + "@" + strings.ReplaceAll(m.Version, "+", "%2B")
	c := component{Type: "library", Ref: purl, Name: m.Path, Version: m.Version, PURL: purl}
	if m.Sum != "" {
		c.Properties = []property{{"go:sum", m.Sum}}
	}
	return c
}

// serial returns a UUID of version 8 that follows from a digest (RFC 9562 §5.8).
func serial(digest [sha256.Size]byte) string {
	u := digest[:16]
	u[6], u[8] = u[6]&0x0f|0x80, u[8]&0x3f|0x80
	return fmt.Sprintf("urn:uuid:%x-%x-%x-%x-%x", u[:4], u[4:6], u[6:8], u[8:10], u[10:16])
}
