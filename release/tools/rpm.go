package main

import (
	"bytes"

	"github.com/google/rpmpack"
)

// rpmArchitectures are the names that rpm has for them.
var rpmArchitectures = map[string]string{"amd64": "x86_64", "arm64": "aarch64"}

// modeDir marks a directory in the modes of rpm.
const modeDir = 0o40000

// rpm returns a package for rpm.
func (r *release) rpm(arch string, files []entry) ([]byte, error) {
	s, err := readScripts()
	if err != nil {
		return nil, err
	}
	m := rpmpack.RPMMetaData{
		Name: "isotone", Version: r.number(), Release: "1", Arch: rpmArchitectures[arch], Epoch: rpmpack.NoEpoch,
		Summary: summary, Description: description, Licence: licence, URL: homepage, Vendor: "Isotone", Packager: maintainer,
		Group: "Applications/Databases", BuildHost: "localhost", BuildTime: r.time,
		Compressor: "gzip:9", // what every version of rpm reads
	}
	// rpm takes what its scripts need from whichever package has these files.
	for _, needed := range []string{"/bin/sh", "/usr/sbin/useradd", "/usr/sbin/groupadd"} {
		if err := m.Requires.Set(needed); err != nil {
			return nil, err
		}
	}
	if err := m.Recommends.Set("ca-certificates"); err != nil {
		return nil, err
	}
	p, err := rpmpack.NewRPM(m)
	if err != nil {
		return nil, err
	}
	p.AddPrein(s.preinstall)
	p.AddPostin(s.postinstall)
	p.AddPreun(s.preremove)
	p.AddPostun(s.postremove)
	for _, f := range files {
		file := rpmpack.RPMFile{
			Name: f.path, Body: f.body, Mode: uint(f.mode), Owner: orRoot(f.owner), Group: orRoot(f.group), MTime: uint32(r.time.Unix()),
		}
		switch {
		case f.dir:
			file.Mode |= modeDir
		case f.conf:
			file.Type = rpmpack.ConfigFile | rpmpack.NoReplaceFile
		case f.doc:
			file.Type = rpmpack.DocFile
		}
		p.AddFile(file)
	}
	var out bytes.Buffer
	if err := p.Write(&out); err != nil {
		return nil, err
	}
	return out.Bytes(), nil
}
