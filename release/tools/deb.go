package main

import (
	"archive/tar"
	"bytes"
	"crypto/md5"
	"fmt"
	"path"
	"strings"
	"time"
)

// deb returns a package for Debian: an ar archive with the version of the format, the control
// files and the data (deb(5), Debian Policy).
func (r *release) deb(arch string, files []entry) ([]byte, error) {
	control, err := r.debControl(arch, files)
	if err != nil {
		return nil, err
	}
	controls, err := tarball(control, r.time)
	if err != nil {
		return nil, err
	}
	data, err := tarball(withParents(files), r.time)
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	out.WriteString("!<arch>\n")
	for _, member := range []struct {
		name string
		body []byte
	}{{"debian-binary", []byte("2.0\n")}, {"control.tar.gz", controls}, {"data.tar.gz", data}} {
		// Name, time, owner, group, mode and size, in columns.
		fmt.Fprintf(&out, "%-16s%-12d%-6d%-6d%-8o%-10d`\n", member.name, r.time.Unix(), 0, 0, 0o100644, len(member.body))
		out.Write(member.body)
		if len(member.body)%2 == 1 {
			out.WriteByte('\n')
		}
	}
	return out.Bytes(), nil
}

// debControl returns the control files of a package with these files.
func (r *release) debControl(arch string, files []entry) ([]entry, error) {
	s, err := readScripts()
	if err != nil {
		return nil, err
	}
	var sums, conffiles strings.Builder
	size := 0
	for _, f := range files {
		size += (len(f.body) + 1023) / 1024
		switch {
		case f.conf:
			fmt.Fprintln(&conffiles, f.path)
		case !f.dir:
			fmt.Fprintf(&sums, "%x  %s\n", md5.Sum(f.body), f.path[1:]) // the format wants MD5
		}
	}
	fields := []string{
		"Package: isotone",
		"Version: " + r.number(),
		"Architecture: " + arch,
		"Maintainer: " + maintainer,
		fmt.Sprintf("Installed-Size: %d", size),
		"Pre-Depends: passwd",
		"Recommends: ca-certificates",
		"Section: database",
		"Priority: optional",
		"Homepage: " + homepage,
		"Description: " + summary,
		" " + strings.ReplaceAll(description, "\n", "\n "),
	}
	return []entry{
		{path: "/conffiles", mode: 0o644, body: []byte(conffiles.String())},
		{path: "/control", mode: 0o644, body: []byte(strings.Join(fields, "\n") + "\n")},
		{path: "/md5sums", mode: 0o644, body: []byte(sums.String())},
		{path: "/postinst", mode: 0o755, body: []byte(s.postinstall)},
		{path: "/postrm", mode: 0o755, body: []byte(s.postremove)},
		{path: "/preinst", mode: 0o755, body: []byte(s.preinstall)},
		{path: "/prerm", mode: 0o755, body: []byte(s.preremove)},
	}, nil
}

// withParents adds the directories above the files, before them. files are in order.
func withParents(files []entry) (all []entry) {
	have := map[string]bool{"/": true}
	var add func(dir string)
	add = func(dir string) {
		if !have[dir] {
			add(path.Dir(dir))
			have[dir] = true
			all = append(all, entry{path: dir, mode: 0o755, dir: true})
		}
	}
	for _, f := range files {
		add(path.Dir(f.path))
		have[f.path] = true
		all = append(all, f)
	}
	return all
}

// numbers has the users that have the same number everywhere.
var numbers = map[string]int{"": 0, imageUser: imageID}

// tarball returns files in the format of tar, compressed. dpkg looks owners up by their names.
func tarball(files []entry, at time.Time) ([]byte, error) {
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	for _, f := range files {
		owner, group := f.owner, f.group
		h := &tar.Header{
			Typeflag: tar.TypeReg, Name: "." + f.path, Mode: f.mode, Size: int64(len(f.body)), ModTime: at, Format: tar.FormatGNU,
			Uname: orRoot(owner), Gname: orRoot(group), Uid: numbers[owner], Gid: numbers[group],
		}
		if f.dir {
			h.Typeflag, h.Name = tar.TypeDir, h.Name+"/"
		}
		if err := w.WriteHeader(h); err != nil {
			return nil, err
		}
		if _, err := w.Write(f.body); err != nil {
			return nil, err
		}
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	return compress(out.Bytes())
}

func orRoot(name string) string {
	if name == "" {
		return "root"
	}
	return name
}
