package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/md5"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/opencontainers/go-digest"
	oci "github.com/opencontainers/image-spec/specs-go/v1"
)

// testRelease is a release whose binaries are short texts.
func testRelease(t *testing.T, platforms ...string) *release {
	t.Helper()
	r := &release{version: "v1.2.3", revision: "0123abc", time: time.Unix(1_764_000_000, 0).UTC(), share: t.TempDir(), out: t.TempDir()}
	put := func(name, text string) {
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"completion.bash", "completion.zsh", "completion.fish", "LICENSE", "LICENSES.txt", "CHANGELOG.md", "man/isotone.1", "man/isotone-serve.1"} {
		put(filepath.Join(r.share, name), "text of "+name)
	}
	for _, platform := range platforms {
		system, arch, _ := strings.Cut(platform, "/")
		put(r.binary(system, arch), "binary of "+platform)
		put(r.liveBinary(system, arch), "binary of live of "+platform)
	}
	return r
}

// made runs the release and returns its files besides the binaries.
func made(t *testing.T, r *release) map[string][]byte {
	t.Helper()
	if err := r.run(); err != nil {
		t.Fatal(err)
	}
	files := map[string][]byte{}
	names, _ := filepath.Glob(filepath.Join(r.out, "*.*"))
	for _, name := range names {
		body, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.HasPrefix(body, []byte("binary of ")) {
			files[filepath.Base(name)] = body
		}
	}
	return files
}

// tarFile is a file or directory in an archive.
type tarFile struct {
	header *tar.Header
	body   []byte
}

func untar(t *testing.T, archive []byte) (files map[string]tarFile, order []string) {
	t.Helper()
	if bytes.HasPrefix(archive, []byte{0x1f, 0x8b}) {
		z, err := gzip.NewReader(bytes.NewReader(archive))
		if err == nil {
			archive, err = io.ReadAll(z)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if end := archive[len(archive)-1024:]; !bytes.Equal(end, make([]byte, 1024)) {
		t.Error("the archive does not end with two empty blocks")
	}
	files = map[string]tarFile{}
	for r := tar.NewReader(bytes.NewReader(archive)); ; {
		h, err := r.Next()
		if err == io.EOF {
			return files, order
		}
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		files[h.Name], order = tarFile{h, body}, append(order, h.Name)
	}
}

// unar returns the members of a deb.
func unar(t *testing.T, archive []byte) map[string][]byte {
	t.Helper()
	members, rest := map[string][]byte{}, archive[len("!<arch>\n"):]
	for len(rest) > 0 {
		var name string
		var at, owner, group, mode, size int
		if _, err := fmt.Sscanf(string(rest[:58]), "%s %d %d %d %o %d", &name, &at, &owner, &group, &mode, &size); err != nil || string(rest[58:60]) != "`\n" {
			t.Fatalf("%q: %v", rest[:60], err)
		}
		members[name] = rest[60 : 60+size]
		rest = rest[60+size+size%2:]
	}
	return members
}

func TestRelease_SameInputGivesTheSameBytes(t *testing.T) {
	platforms := []string{"linux/amd64", "linux/arm64", "darwin/amd64", "darwin/arm64"}
	one, two := made(t, testRelease(t, platforms...)), made(t, testRelease(t, platforms...))
	if len(one) != 6 {
		t.Errorf("%d files, want two deb, two rpm, an image and a formula", len(one))
	}
	for name, body := range one {
		if !bytes.Equal(body, two[name]) {
			t.Errorf("%s differs", name)
		}
	}
}

func TestRelease_MakesWhatTheBinariesSufficeFor(t *testing.T) {
	if files := made(t, testRelease(t, "darwin/arm64")); len(files) != 0 {
		t.Errorf("made %d files without a binary for Linux", len(files))
	}
	files := made(t, testRelease(t, "linux/amd64"))
	if len(files) != 3 || files["isotone.rb"] != nil {
		t.Errorf("made %d files of a binary for one platform", len(files))
	}
	r := testRelease(t)
	r.version = "1.2"
	if err := r.run(); err == nil || !strings.Contains(err.Error(), "v1.2.3") {
		t.Errorf("a version that is none: %v", err)
	}
}

func TestRelease_CandidatesAreOlderThanTheRelease(t *testing.T) {
	for version, want := range map[string]string{"v1.2.3": "1.2.3", "v1.2.3-rc.1": "1.2.3~rc.1", "v1.2.3-a-b": "1.2.3~a.b"} {
		if got := (&release{version: version}).number(); got != want {
			t.Errorf("%s: got %s, want %s", version, got, want)
		}
	}
}

func TestDeb_HasFilesSumsAndScripts(t *testing.T) {
	members := unar(t, made(t, testRelease(t, "linux/arm64"))["isotone_v1.2.3_linux_arm64.deb"])
	if string(members["debian-binary"]) != "2.0\n" {
		t.Errorf("version of the format: %q", members["debian-binary"])
	}
	control, _ := untar(t, members["control.tar.gz"])
	data, order := untar(t, members["data.tar.gz"])
	for _, want := range []string{"Package: isotone\n", "Version: 1.2.3\n", "Architecture: arm64\n", "Description: timestamp oracle"} {
		if !bytes.Contains(control["./control"].body, []byte(want)) {
			t.Errorf("control does not have %q:\n%s", want, control["./control"].body)
		}
	}
	if got := string(control["./conffiles"].body); got != "/etc/isotone/isotone.env\n" {
		t.Errorf("conffiles: %q", got)
	}
	for _, script := range []string{"preinst", "postinst", "prerm", "postrm"} {
		if f := control["./"+script]; f.header == nil || f.header.Mode != 0o755 || !bytes.HasPrefix(f.body, []byte("#!/bin/sh\n")) {
			t.Errorf("%s is no script", script)
		}
	}
	for line := range strings.Lines(string(control["./md5sums"].body)) {
		sum, name, _ := strings.Cut(strings.TrimSpace(line), "  ")
		if want := fmt.Sprintf("%x", md5.Sum(data["./"+name].body)); sum != want {
			t.Errorf("%s has the sum %s, want %s", name, sum, want)
		}
	}
	seen := map[string]bool{"./": true}
	for _, name := range order {
		if dir := name[:strings.LastIndexByte(strings.TrimSuffix(name, "/"), '/')+1]; !seen[dir] {
			t.Errorf("%s comes before its directory", name)
		}
		seen[name] = true
	}
	if f := data["./usr/bin/isotone"]; string(f.body) != "binary of linux/arm64" || f.header.Mode != 0o755 {
		t.Errorf("the binary: %+v", f)
	}
	if f := data["./usr/bin/isotone-live"]; string(f.body) != "binary of live of linux/arm64" || f.header.Mode != 0o755 {
		t.Errorf("isotone-live: %+v", f)
	}
	if h := data["./var/lib/isotone/"].header; h == nil || h.Uname != "isotone" || h.Mode != 0o750 {
		t.Errorf("the directory of the data: %+v", h)
	}
}

// readBlob returns the JSON that d refers to, whose size and digest must be right.
func readBlob[T any](t *testing.T, files map[string]tarFile, d oci.Descriptor) (value T) {
	t.Helper()
	body := files[blobPath(d.Digest)].body
	if d.Digest != digest.FromBytes(body) || d.Size != int64(len(body)) {
		t.Fatalf("the blob of %+v has %d bytes and another digest", d, len(body))
	}
	if err := json.Unmarshal(body, &value); err != nil {
		t.Fatal(err)
	}
	return value
}

func TestImage_HasBothArchitectures(t *testing.T) {
	files, _ := untar(t, made(t, testRelease(t, "linux/amd64", "linux/arm64"))["isotone_v1.2.3_oci.tar"])
	var top oci.Index
	if err := json.Unmarshal(files["index.json"].body, &top); err != nil || len(top.Manifests) != 1 {
		t.Fatalf("%s: %v", files["index.json"].body, err)
	}
	if name := top.Manifests[0].Annotations["org.opencontainers.image.ref.name"]; name != "v1.2.3" {
		t.Errorf("the image is called %q", name)
	}
	both := readBlob[oci.Index](t, files, top.Manifests[0])
	if len(both.Manifests) != 2 {
		t.Fatalf("%d architectures", len(both.Manifests))
	}
	for i, arch := range architectures {
		d := both.Manifests[i]
		if d.Platform == nil || d.Platform.Architecture != arch || d.Platform.OS != "linux" {
			t.Errorf("platform %+v, want %s", d.Platform, arch)
		}
		m := readBlob[oci.Manifest](t, files, d)
		c := readBlob[imageConfig](t, files, m.Config)
		if c.Architecture != arch || c.Config.User != "65532:65532" || c.Config.Labels["org.opencontainers.image.revision"] != "0123abc" {
			t.Errorf("%s: %+v", arch, c)
		}
		layer := files[blobPath(m.Layers[0].Digest)].body
		root, _ := untar(t, layer)
		if got := string(root["./usr/bin/isotone"].body); got != "binary of linux/"+arch {
			t.Errorf("%s: the program is %q", arch, got)
		}
		if h := root["./var/lib/isotone/"].header; h == nil || h.Uid != imageID || h.Gid != imageID {
			t.Errorf("%s: the directory of the data: %+v", arch, h)
		}
		z, _ := gzip.NewReader(bytes.NewReader(layer))
		content, _ := io.ReadAll(z)
		if c.RootFS.DiffIDs[0] != digest.FromBytes(content) {
			t.Errorf("%s: the digest of the unpacked layer is wrong", arch)
		}
	}
}

func TestImage_TrustsAuthorities(t *testing.T) {
	if n := bytes.Count(authorities(), []byte("BEGIN CERTIFICATE")); n < 50 {
		t.Errorf("%d authorities", n)
	}
}

func TestFormula_NamesTheBinariesByTheirSums(t *testing.T) {
	text := string(made(t, testRelease(t, "linux/amd64", "linux/arm64", "darwin/amd64", "darwin/arm64"))["isotone.rb"])
	for _, platform := range []string{"linux/amd64", "linux/arm64", "darwin/amd64", "darwin/arm64"} {
		sum := sha256.Sum256([]byte("binary of " + platform))
		want := fmt.Sprintf("isotone_v1.2.3_%s\"\n      sha256 %q", strings.ReplaceAll(platform, "/", "_"), hex.EncodeToString(sum[:]))
		if !strings.Contains(text, want) {
			t.Errorf("%s: %q is missing in:\n%s", platform, want, text)
		}
	}
	if !strings.Contains(text, `version "1.2.3"`) || strings.Contains(text, "{{") {
		t.Errorf("the formula is not filled in:\n%s", text)
	}
}
