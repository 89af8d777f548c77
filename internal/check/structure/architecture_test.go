package structure_test

import (
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// documented matches a row of the table of packages in ARCHITECTURE.md.
var documented = regexp.MustCompile("(?m)^\\| (\\*\\*)?`([^`]+)`[*]*( ◆)?[^|]* \\|.*\\| ([^|]*) \\|$")

// TestArchitecture_TableIsTrue compares the table of packages in ARCHITECTURE.md with that of this package: each internal package has a row, which
// names what it imports, and is marked if it is deterministic.
func TestArchitecture_TableIsTrue(t *testing.T) {
	text, err := os.ReadFile("ARCHITECTURE.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(text), "\n## Packages\n")
	section, _, _ = strings.Cut(section, "\n## ")
	table := parseTable(t, dependencies)
	found, folder := map[string]bool{}, ""
	for _, m := range documented.FindAllStringSubmatch(section, -1) {
		name, isFolder, deterministic, imports := m[2], m[1] != "", m[3] != "", m[4]
		if isFolder {
			folder = name
		}
		pkg := packageOf(table, folder, name)
		if isFolder {
			pkg = name
		}
		want, ok := table[pkg]
		if !ok {
			continue // a folder without a package, or a module of its own
		}
		found[pkg] = true
		if deterministic != slices.Contains(zone, pkg) {
			t.Errorf("%s: marked with ◆: %v, want %v", pkg, deterministic, !deterministic)
		}
		if strings.Contains(imports, "what they need of") || imports == "anything" {
			continue
		}
		var got []string
		ours, _, _ := strings.Cut(imports, ";")
		for name := range strings.SplitSeq(ours, ",") {
			if name = strings.Trim(strings.TrimSpace(name), "`"); name != "" && !strings.HasPrefix(name, "none") {
				got = append(got, packageOf(table, folder, name))
			}
		}
		slices.Sort(got)
		all := slices.Sorted(slices.Values(want.ours))
		if missing := without(all, got); len(missing) > 0 {
			t.Errorf("ARCHITECTURE.md: the row of %s lacks %v", pkg, missing)
		}
		if more := without(got, all); len(more) > 0 {
			t.Errorf("ARCHITECTURE.md: the row of %s names %v, which it may not import", pkg, more)
		}
	}
	for pkg := range table {
		if strings.HasPrefix(pkg, "internal/") && !found[pkg] {
			t.Errorf("ARCHITECTURE.md: %s has no row", pkg)
		}
	}
}

// packageOf returns the directory of a package that a row in a folder names: one of the folder itself, then one of the whole name, then
// the internal one that ends with it.
func packageOf(table map[string]row, folder, name string) string {
	if name == "isotone" {
		return "."
	}
	for _, pkg := range []string{folder + "/" + name, name} {
		if _, ok := table[pkg]; ok {
			return pkg
		}
	}
	for _, pkg := range slices.Sorted(maps.Keys(table)) {
		if strings.HasSuffix(pkg, "/"+name) && (strings.HasPrefix(pkg, "internal/") || strings.HasPrefix(pkg, "conformance/")) {
			return pkg
		}
	}
	return name
}

// without returns what is in a and not in b.
func without(a, b []string) []string {
	return slices.DeleteFunc(slices.Clone(a), func(x string) bool { return slices.Contains(b, x) })
}
