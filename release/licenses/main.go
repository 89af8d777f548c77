// Command licenses prints the licences of everything that is in the binaries of a release: those
// licences demand that binaries come with them.
//
//	licenses BINARY ...
//
// It looks modules up as the linker has recorded them, in the build list of the module in the
// working directory. A module without a licence is an error.
package main

import (
	"bytes"
	"debug/buildinfo"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

func main() {
	if len(os.Args) < 2 {
		fmt.Fprintln(os.Stderr, "usage: licenses BINARY ...")
		os.Exit(2)
	}
	if err := run(os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "licenses:", err)
		os.Exit(1)
	}
}

// run writes the licences of the modules in the binaries, in the order of their paths.
func run(binaries []string, to io.Writer) error {
	versions := map[string]string{} // of modules, by path
	for _, name := range binaries {
		info, err := buildinfo.ReadFile(name)
		if err != nil {
			return err
		}
		for _, m := range info.Deps {
			versions[m.Path] = m.Version
		}
	}
	paths := slices.Sorted(maps.Keys(versions))
	dirs, err := directories(paths)
	if err != nil {
		return err
	}
	root, err := exec.Command("go", "env", "GOROOT").Output()
	if err != nil {
		return fmt.Errorf("go env GOROOT: %w", err)
	}
	fmt.Fprintln(to, "isotone contains the following software under the licences below.")
	if err := write(to, "The Go standard library and runtime", strings.TrimSpace(string(root))); err != nil {
		return err
	}
	for _, path := range paths {
		if err := write(to, path+" "+versions[path], dirs[path]); err != nil {
			return err
		}
	}
	return nil
}

// directories returns where the sources of modules are, by their paths.
func directories(paths []string) (map[string]string, error) {
	dirs := map[string]string{}
	if len(paths) == 0 {
		return dirs, nil
	}
	cmd := exec.Command("go", append([]string{"list", "-m", "-f", "{{.Path}}\t{{.Dir}}"}, paths...)...)
	var faults bytes.Buffer
	cmd.Stderr = &faults
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("go list -m: %w\n%s", err, &faults)
	}
	for line := range strings.Lines(string(out)) {
		path, dir, _ := strings.Cut(strings.TrimSpace(line), "\t")
		dirs[path] = dir
	}
	return dirs, nil
}

// licenceName matches the files that licences are in, and notices, which some licences demand.
var licenceName = regexp.MustCompile(`(?i)^(licen[cs]e|copying|notice|patents)([.-].*)?$`)

// write writes the licences in the directory of a module.
func write(to io.Writer, title, dir string) error {
	files, err := os.ReadDir(dir)
	if err != nil {
		return fmt.Errorf("%s: %w", title, err)
	}
	found := false
	for _, file := range files {
		if file.IsDir() || !licenceName.MatchString(file.Name()) || strings.HasSuffix(file.Name(), ".go") {
			continue
		}
		text, err := os.ReadFile(filepath.Join(dir, file.Name()))
		if err != nil {
			return fmt.Errorf("%s: %w", title, err)
		}
		found = true
		if _, err := fmt.Fprintf(to, "\n%s\n%s, %s\n\n%s\n", strings.Repeat("=", 78), title, file.Name(), bytes.TrimSpace(bytes.ReplaceAll(text, []byte("\r"), nil))); err != nil {
			return err
		}
	}
	if !found {
		return errors.New(title + " has no licence in " + dir)
	}
	return nil
}
