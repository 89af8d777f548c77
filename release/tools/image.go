package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/opencontainers/go-digest"
	"github.com/opencontainers/image-spec/specs-go"
	oci "github.com/opencontainers/image-spec/specs-go/v1"
	"golang.org/x/crypto/x509roots/fallback/bundle"
)

// The user in the image, which is the one of the images that have nothing but a program.
const (
	imageUser = "nonroot"
	imageID   = 65532
)

// version2 is that of all documents of an image.
var version2 = specs.Versioned{SchemaVersion: 2}

// imageConfig is how the program in an image is run: that of OCI, and Docker's health check. Others
// have health checks elsewhere.
type imageConfig struct {
	oci.Image
	Config struct {
		oci.ImageConfig
		Healthcheck healthcheck `json:"Healthcheck"`
	} `json:"config"`
}

type healthcheck struct {
	Test          []string      `json:"Test"`
	Interval      time.Duration `json:"Interval"`
	Timeout       time.Duration `json:"Timeout"`
	StartPeriod   time.Duration `json:"StartPeriod"`
	StartInterval time.Duration `json:"StartInterval"`
	Retries       int           `json:"Retries"`
}

// blobs are the contents of an archive, by their digests.
type blobs map[digest.Digest][]byte

// add returns a descriptor of content, which is JSON unless it is bytes already.
func (b blobs) add(mediaType string, content any) (oci.Descriptor, error) {
	body, ready := content.([]byte)
	if !ready {
		var err error
		if body, err = json.Marshal(content); err != nil {
			return oci.Descriptor{}, err
		}
	}
	d := oci.Descriptor{MediaType: mediaType, Digest: digest.FromBytes(body), Size: int64(len(body))}
	b[d.Digest] = body
	return d, nil
}

// platformImage is the image for one architecture.
type platformImage struct {
	blobs           blobs
	manifest        oci.Descriptor
	config, content digest.Digest
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
	layerAt, err := i.blobs.add(oci.MediaTypeImageLayerGzip, layer)
	if err != nil {
		return platformImage{}, err
	}
	configAt, err := i.blobs.add(oci.MediaTypeImageConfig, r.imageConfig(arch, digest.FromBytes(content)))
	if err != nil {
		return platformImage{}, err
	}
	i.manifest, err = i.blobs.add(oci.MediaTypeImageManifest, oci.Manifest{
		Versioned: version2, MediaType: oci.MediaTypeImageManifest, Config: configAt, Layers: []oci.Descriptor{layerAt}, Annotations: r.labels(),
	})
	i.manifest.Platform = &oci.Platform{Architecture: arch, OS: "linux"}
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

func (r *release) imageConfig(arch string, content digest.Digest) *imageConfig {
	c := &imageConfig{Image: oci.Image{Created: &r.time, Platform: oci.Platform{Architecture: arch, OS: "linux"}}}
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
	c.RootFS.Type, c.RootFS.DiffIDs = "layers", []digest.Digest{content}
	c.History = []oci.History{{Created: &r.time, CreatedBy: "release/build.sh " + r.version}}
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
	all, both := blobs{}, oci.Index{Versioned: version2, MediaType: oci.MediaTypeImageIndex, Annotations: r.labels()}
	type legacy struct {
		Config   string
		RepoTags []string
		Layers   []string
	}
	var old []legacy
	for _, i := range images {
		maps.Copy(all, i.blobs)
		both.Manifests = append(both.Manifests, i.manifest)
		old = append(old, legacy{blobPath(i.config), []string{"isotone:" + r.version + "-" + i.manifest.Platform.Architecture}, []string{blobPath(i.content)}})
	}
	named, err := all.add(oci.MediaTypeImageIndex, both)
	if err != nil {
		return nil, err
	}
	named.Annotations = map[string]string{"io.containerd.image.name": "docker.io/library/isotone:" + r.version, oci.AnnotationRefName: r.version}
	files := map[string]any{
		"index.json": oci.Index{Versioned: version2, MediaType: oci.MediaTypeImageIndex, Manifests: []oci.Descriptor{named}}, "manifest.json": old,
		oci.ImageLayoutFile: oci.ImageLayout{Version: oci.ImageLayoutVersion},
	}
	for named, body := range all {
		files[blobPath(named)] = body
	}
	return writeArchive(files, r.time)
}

func blobPath(d digest.Digest) string { return "blobs/sha256/" + d.Encoded() }

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
