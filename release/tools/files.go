package main

import (
	"bytes"
	"compress/gzip"
	"embed"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

//go:embed linux
var linux embed.FS

// entry is a file or a directory that a package installs.
type entry struct {
	path  string // absolute
	mode  int64  // permissions
	owner string // user; "" is root
	group string // "" is root
	dir   bool
	conf  bool // belongs to the operator: an upgrade leaves it as it is
	doc   bool
	body  []byte
}

// The user of the service, and the directory of its data.
const (
	serviceUser = "isotone"
	dataDir     = "/var/lib/isotone"
)

// files returns what a package of that kind, deb or rpm, installs, in the order of the paths.
func (r *release) files(kind string, p programs) ([]entry, error) {
	unit, err := linux.ReadFile("linux/isotone.service")
	if err != nil {
		return nil, err
	}
	settings, err := linux.ReadFile("linux/isotone.env")
	if err != nil {
		return nil, err
	}
	licences, zsh := "/usr/share/licenses/isotone/", "/usr/share/zsh/site-functions/"
	if kind == "deb" {
		licences, zsh = "/usr/share/doc/isotone/", "/usr/share/zsh/vendor-completions/"
	}
	files := []entry{
		{path: "/usr/bin/isotone", mode: 0o755, body: p.isotone},
		{path: "/usr/bin/isotone-live", mode: 0o755, body: p.live},
		{path: "/usr/lib/systemd/system/isotone.service", mode: 0o644, body: unit},
		{path: "/etc/isotone", mode: 0o755, dir: true},
		// URLs in LIVE may have passwords.
		{path: "/etc/isotone/isotone.env", mode: 0o640, group: serviceUser, conf: true, body: settings},
		{path: dataDir, mode: 0o750, owner: serviceUser, group: serviceUser, dir: true},
	}
	for _, shared := range []struct{ from, to string }{
		{"completion.bash", "/usr/share/bash-completion/completions/isotone"},
		{"completion.zsh", zsh + "_isotone"},
		{"completion.fish", "/usr/share/fish/vendor_completions.d/isotone.fish"},
		{"LICENSE", licences + licenceName(kind)},
		{"LICENSES.txt", licences + "LICENSES.txt"},
		{"CHANGELOG.md", "/usr/share/doc/isotone/CHANGELOG.md"},
	} {
		body, err := os.ReadFile(filepath.Join(r.share, shared.from))
		if err != nil {
			return nil, err
		}
		files = append(files, entry{path: shared.to, mode: 0o644, doc: strings.HasPrefix(shared.to, "/usr/share/doc/"), body: body})
	}
	pages, err := r.manual()
	if err != nil {
		return nil, err
	}
	files = append(files, pages...)
	slices.SortFunc(files, func(a, b entry) int { return strings.Compare(a.path, b.path) })
	return files, nil
}

// licenceName returns what the file with the licence is called where package managers look for it.
func licenceName(kind string) string {
	if kind == "deb" {
		return "copyright"
	}
	return "LICENSE"
}

// manual returns the compressed manual pages.
func (r *release) manual() (pages []entry, err error) {
	names, err := filepath.Glob(filepath.Join(r.share, "man", "*.1"))
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		text, err := os.ReadFile(name)
		if err != nil {
			return nil, err
		}
		body, err := compress(text)
		if err != nil {
			return nil, err
		}
		pages = append(pages, entry{path: "/usr/share/man/man1/" + filepath.Base(name) + ".gz", mode: 0o644, doc: true, body: body})
	}
	return pages, nil
}

// compress returns text in the format of gzip, without a name and a time.
func compress(text []byte) ([]byte, error) {
	var out bytes.Buffer
	w, err := gzip.NewWriterLevel(&out, gzip.BestCompression)
	if err != nil {
		return nil, err
	}
	w.ModTime = time.Time{}
	if _, err := w.Write(text); err != nil {
		return nil, err
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	return out.Bytes(), nil
}

// scripts are what package managers run at each step.
type scripts struct{ preinstall, postinstall, preremove, postremove string }

func readScripts() (s scripts, err error) {
	for name, to := range map[string]*string{
		"preinstall": &s.preinstall, "postinstall": &s.postinstall, "preremove": &s.preremove, "postremove": &s.postremove,
	} {
		text, err := linux.ReadFile("linux/" + name + ".sh")
		if err != nil {
			return scripts{}, err
		}
		*to = string(text)
	}
	return s, nil
}
