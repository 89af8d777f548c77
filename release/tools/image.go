package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/crypto/x509roots/fallback/bundle"
)

// The user in the image, which is the one of the images that have nothing but a program.
const (
	imageUser = "nonroot"
	imageID   = 65532
)

// Media types of the OCI image specification 1.1.
const (
	typeIndex    = "application/vnd.oci.image.index.v1+json"
	typeManifest = "application/vnd.oci.image.manifest.v1+json"
	typeConfig   = "application/vnd.oci.image.config.v1+json"
	typeLayer    = "application/vnd.oci.image.layer.v1.tar+gzip"
)

// descriptor refers to a blob.
type descriptor struct {
	MediaType   string            `json:"mediaType"`
	Digest      string            `json:"digest"`
	Size        int               `json:"size"`
	Platform    *platform         `json:"platform,omitempty"`
	Annotations map[string]string `json:"annotations,omitempty"`
}

type platform struct {
	Architecture string `json:"architecture"`
	OS           string `json:"os"`
}

type manifest struct {
	SchemaVersion int               `json:"schemaVersion"`
	MediaType     string            `json:"mediaType"`
	Config        descriptor        `json:"config"`
	Layers        []descriptor      `json:"layers"`
	Annotations   map[string]string `json:"annotations,omitempty"`
}

type index struct {
	SchemaVersion int               `json:"schemaVersion"`
	MediaType     string            `json:"mediaType"`
	Manifests     []descriptor      `json:"manifests"`
	Annotations   map[string]string `json:"annotations,omitempty"`
}

// imageConfig is how the program in an image is run.
type imageConfig struct {
	Created string `json:"created"`
	platform
	Config struct {
		User         string              `json:"User"`
		ExposedPorts map[string]struct{} `json:"ExposedPorts"`
		Env          []string            `json:"Env"`
		Entrypoint   []string            `json:"Entrypoint"`
		Cmd          []string            `json:"Cmd"`
		Volumes      map[string]struct{} `json:"Volumes"`
		WorkingDir   string              `json:"WorkingDir"`
		Labels       map[string]string   `json:"Labels"`
		StopSignal   string              `json:"StopSignal"`
		// Docker's own; others have health checks elsewhere.
		Healthcheck healthcheck `json:"Healthcheck"`
	} `json:"config"`
	RootFS struct {
		Type    string   `json:"type"`
		DiffIDs []string `json:"diff_ids"`
	} `json:"rootfs"`
	History []history `json:"history"`
}

type healthcheck struct {
	Test          []string      `json:"Test"`
	Interval      time.Duration `json:"Interval"`
	Timeout       time.Duration `json:"Timeout"`
	StartPeriod   time.Duration `json:"StartPeriod"`
	StartInterval time.Duration `json:"StartInterval"`
	Retries       int           `json:"Retries"`
}

type history struct {
	Created   string `json:"created"`
	CreatedBy string `json:"created_by"`
}

// blobs are the contents of an archive, by their digests.
type blobs map[string][]byte

// add returns a descriptor of content, which is JSON unless it is bytes already.
func (b blobs) add(mediaType string, content any) (descriptor, error) {
	body, ready := content.([]byte)
	if !ready {
		var err error
		if body, err = json.Marshal(content); err != nil {
			return descriptor{}, err
		}
	}
	digest := digestOf(body)
	b[digest] = body
	return descriptor{MediaType: mediaType, Digest: digest, Size: len(body)}, nil
}

func digestOf(body []byte) string {
	sum := sha256.Sum256(body)
	return "sha256:" + hex.EncodeToString(sum[:])
}

// platformImage is the image for one architecture.
type platformImage struct {
	blobs           blobs
	manifest        descriptor
	config, content string // digests
}

// image returns the image for one architecture: the programs, certificates of authorities for HTTPS
// to others, and a user. There is no shell and no library.
func (r *release) image(arch string, p programs) (platformImage, error) {
	layer, err := r.layer(p)
	if err != nil {
		return platformImage{}, err
	}
	unpacked, err := gzip.NewReader(bytes.NewReader(layer))
	if err != nil {
		return platformImage{}, err
	}
	content, err := io.ReadAll(unpacked)
	if err != nil {
		return platformImage{}, err
	}
	i := platformImage{blobs: blobs{}}
	layerAt, err := i.blobs.add(typeLayer, layer)
	if err != nil {
		return platformImage{}, err
	}
	configAt, err := i.blobs.add(typeConfig, r.imageConfig(arch, digestOf(content)))
	if err != nil {
		return platformImage{}, err
	}
	i.manifest, err = i.blobs.add(typeManifest, manifest{SchemaVersion: 2, MediaType: typeManifest, Config: configAt, Layers: []descriptor{layerAt}, Annotations: r.labels()})
	i.manifest.Platform = &platform{Architecture: arch, OS: "linux"}
	i.config, i.content = configAt.Digest, layerAt.Digest
	return i, err
}

// layer returns the files of the image.
func (r *release) layer(p programs) ([]byte, error) {
	files := []entry{
		{path: "/etc/group", mode: 0o644, body: fmt.Appendf(nil, "root:x:0:\n%s:x:%d:\n", imageUser, imageID)},
		{path: "/etc/passwd", mode: 0o644, body: fmt.Appendf(nil, "root:x:0:0:root:/:/sbin/nologin\n%s:x:%d:%[2]d:%[1]s:/:/sbin/nologin\n", imageUser, imageID)},
		{path: "/etc/ssl/certs/ca-certificates.crt", mode: 0o644, body: authorities()},
		{path: "/tmp", mode: 0o1777, dir: true},
		{path: "/usr/bin/isotone", mode: 0o755, body: p.isotone},
		{path: "/usr/bin/isotone-live", mode: 0o755, body: p.live},
	}
	for _, name := range []string{"LICENSE", "LICENSES.txt"} {
		body, err := os.ReadFile(filepath.Join(r.share, name))
		if err != nil {
			return nil, err
		}
		files = append(files, entry{path: "/usr/share/licenses/isotone/" + name, mode: 0o644, body: body})
	}
	files = append(files, entry{path: dataDir, mode: 0o750, owner: imageUser, group: imageUser, dir: true})
	return tarball(withParents(files), r.time)
}

// authorities returns the certificates of the authorities that Mozilla trusts, as PEM, without those
// that it trusts only in part: a file of certificates cannot say which.
func authorities() []byte {
	var out bytes.Buffer
	for root := range bundle.Roots() {
		if root.Constraint == nil {
			_ = pem.Encode(&out, &pem.Block{Type: "CERTIFICATE", Bytes: root.Certificate}) // a buffer takes everything
		}
	}
	return out.Bytes()
}

func (r *release) imageConfig(arch, content string) *imageConfig {
	c := &imageConfig{Created: r.time.Format(time.RFC3339), platform: platform{Architecture: arch, OS: "linux"}}
	c.Config.User = fmt.Sprintf("%d:%d", imageID, imageID)
	c.Config.ExposedPorts = map[string]struct{}{"7609/tcp": {}, "8080/tcp": {}, "8080/udp": {}, "60001/tcp": {}}
	c.Config.Env = []string{"PATH=/usr/bin", "DATA_DIR=" + dataDir}
	c.Config.Entrypoint = []string{"/usr/bin/isotone"}
	c.Config.Cmd = []string{"serve"}
	c.Config.Volumes = map[string]struct{}{dataDir: {}}
	c.Config.WorkingDir = dataDir
	c.Config.Labels = r.labels()
	c.Config.StopSignal = "SIGTERM"
	c.Config.Healthcheck = healthcheck{
		Test: []string{"CMD", "/usr/bin/isotone", "ready"}, Interval: 5 * time.Second, Timeout: 3 * time.Second,
		StartPeriod: time.Minute, StartInterval: time.Second, Retries: 3,
	}
	c.RootFS.Type, c.RootFS.DiffIDs = "layers", []string{content}
	c.History = []history{{c.Created, "release/build.sh " + r.version}}
	return c
}

// labels says what an image is, in the words of the OCI image specification.
func (r *release) labels() map[string]string {
	const prefix = "org.opencontainers.image."
	return map[string]string{
		prefix + "created": r.time.Format(time.RFC3339), prefix + "description": "A " + summary + ": unique, strictly increasing timestamps, and Snowflake IDs",
		prefix + "documentation": homepage + "/blob/" + r.version + "/README.md", prefix + "licenses": licence, prefix + "revision": r.revision,
		prefix + "source": homepage, prefix + "title": "isotone", prefix + "url": homepage, prefix + "vendor": "Isotone", prefix + "version": r.version,
	}
}

// archive returns an OCI image layout with the images as one, in the format of tar. It has a
// manifest.json as well, for versions of "docker load" that know no layouts: those take the images
// one by one, and the architecture is part of the tag.
func (r *release) archive(images []platformImage) ([]byte, error) {
	all, both := blobs{}, index{SchemaVersion: 2, MediaType: typeIndex, Annotations: r.labels()}
	type legacy struct {
		Config   string
		RepoTags []string
		Layers   []string
	}
	var old []legacy
	for _, i := range images {
		for digest, body := range i.blobs {
			all[digest] = body
		}
		both.Manifests = append(both.Manifests, i.manifest)
		old = append(old, legacy{blobPath(i.config), []string{"isotone:" + r.version + "-" + i.manifest.Platform.Architecture}, []string{blobPath(i.content)}})
	}
	named, err := all.add(typeIndex, both)
	if err != nil {
		return nil, err
	}
	named.Annotations = map[string]string{"io.containerd.image.name": "docker.io/library/isotone:" + r.version, "org.opencontainers.image.ref.name": r.version}
	files := map[string]any{
		"index.json": index{SchemaVersion: 2, MediaType: typeIndex, Manifests: []descriptor{named}}, "manifest.json": old,
		"oci-layout": map[string]string{"imageLayoutVersion": "1.0.0"},
	}
	for digest, body := range all {
		files[blobPath(digest)] = body
	}
	return writeArchive(files, r.time)
}

func blobPath(digest string) string { return "blobs/sha256/" + digest[len("sha256:"):] }

// writeArchive returns files in the format of tar, in the order of their names. What is not bytes
// becomes JSON.
func writeArchive(files map[string]any, at time.Time) ([]byte, error) {
	var names []string
	for name := range files {
		names = append(names, name)
	}
	slices.Sort(names)
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	for _, name := range names {
		body, ready := files[name].([]byte)
		if !ready {
			var err error
			if body, err = json.Marshal(files[name]); err != nil {
				return nil, err
			}
		}
		if err := w.WriteHeader(&tar.Header{Name: name, Mode: 0o644, Size: int64(len(body)), ModTime: at, Format: tar.FormatUSTAR}); err != nil {
			return nil, err
		}
		if _, err := w.Write(body); err != nil {
			return nil, err
		}
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	return out.Bytes(), nil
}
