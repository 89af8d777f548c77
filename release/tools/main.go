// Command tools makes what a release has besides the binaries: packages for Debian and rpm, an
// image for containers, and a formula for Homebrew. release/build.sh calls it; docs/decisions/0030
// says why it exists.
//
//	tools -version v1.2.3 -revision COMMIT -time SECONDS -share DIR OUT
//
// It reads the binaries in OUT, which are called isotone_VERSION_OS_ARCH and isotone-live_VERSION_OS_ARCH, and writes to OUT. The
// same input gives the same bytes: there is no other time in them than that of the commit, and
// files are in the order of their names.
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"
)

func main() {
	r := release{}
	seconds := flag.Int64("time", 0, "when the commit was made, in unix seconds")
	flag.StringVar(&r.version, "version", "", "the version, as v1.2.3")
	flag.StringVar(&r.revision, "revision", "", "the commit")
	flag.StringVar(&r.share, "share", "", "directory with man/*.1, completion.bash, .zsh and .fish, LICENSE, LICENSES.txt and CHANGELOG.md")
	flag.Parse()
	r.time = time.Unix(*seconds, 0).UTC()
	if flag.NArg() != 1 {
		flag.Usage()
		os.Exit(2)
	}
	r.out = flag.Arg(0)
	if err := r.run(); err != nil {
		fmt.Fprintln(os.Stderr, "tools:", err)
		os.Exit(1)
	}
}

// release is one release, of which the binaries are already there.
type release struct {
	version  string // with v
	revision string
	time     time.Time // of the commit
	share    string    // directory
	out      string    // directory
}

// What packages and images say of themselves.
const (
	homepage    = "https://github.com/isotone/isotone"
	maintainer  = "The Isotone authors <releases@isotone>"
	summary     = "timestamp oracle and ID service"
	description = "Isotone hands out unique, strictly increasing timestamps in real-time order,\nas distributed transactions need them, and Snowflake IDs. Several nodes agree\nthrough Raft."
	licence     = "Apache-2.0"
)

// architectures are those of the packages and of the image.
var architectures = []string{"amd64", "arm64"}

var versionForm = regexp.MustCompile(`^v[0-9]+\.[0-9]+\.[0-9]+(-[0-9A-Za-z.-]+)?$`)

// run makes everything that the binaries in r.out suffice for.
func (r *release) run() error {
	if !versionForm.MatchString(r.version) {
		return fmt.Errorf("-version %q: want one such as v1.2.3", r.version)
	}
	var images []platformImage
	for _, arch := range architectures {
		p, err := r.programs("linux", arch)
		if errors.Is(err, os.ErrNotExist) {
			continue
		} else if err != nil {
			return err
		}
		if err := r.pack(arch, p); err != nil {
			return err
		}
		image, err := r.image(arch, p)
		if err != nil {
			return err
		}
		images = append(images, image)
	}
	if len(images) > 0 {
		archive, err := r.archive(images)
		if err != nil {
			return err
		}
		if err := r.write("isotone_"+r.version+"_oci.tar", archive); err != nil {
			return err
		}
	}
	formula, err := r.formula()
	if err != nil || formula == nil {
		return err
	}
	return r.write("isotone.rb", formula)
}

// pack writes the packages for one architecture.
func (r *release) pack(arch string, p programs) error {
	for suffix, make := range map[string]func(string, []entry) ([]byte, error){"deb": r.deb, "rpm": r.rpm} {
		files, err := r.files(suffix, p)
		if err != nil {
			return err
		}
		content, err := make(arch, files)
		if err != nil {
			return fmt.Errorf("%s for %s: %w", suffix, arch, err)
		}
		if err := r.write(fmt.Sprintf("isotone_%s_linux_%s.%s", r.version, arch, suffix), content); err != nil {
			return err
		}
	}
	return nil
}

// programs are the binaries for one platform.
type programs struct{ isotone, live []byte }

// programs reads the binaries for a platform. The error is os.ErrNotExist if it is not built.
func (r *release) programs(system, arch string) (p programs, err error) {
	if p.isotone, err = os.ReadFile(r.binary(system, arch)); err == nil {
		p.live, err = os.ReadFile(r.liveBinary(system, arch))
	}
	return p, err
}

// liveBinary returns the path of isotone-live, which a node starts for live documents in databases.
func (r *release) liveBinary(system, arch string) string {
	return filepath.Join(r.out, fmt.Sprintf("isotone-live_%s_%s_%s", r.version, system, arch))
}

// binary returns the path of a binary of the release.
func (r *release) binary(system, arch string) string {
	return filepath.Join(r.out, fmt.Sprintf("isotone_%s_%s_%s", r.version, system, arch))
}

func (r *release) write(name string, content []byte) error {
	return os.WriteFile(filepath.Join(r.out, name), content, 0o644)
}

// number returns the version as package managers order it: a release candidate is older than the
// release, so what follows the hyphen follows a tilde. A further hyphen would separate the
// packagers' own number.
func (r *release) number() string {
	number, rest, candidate := strings.Cut(strings.TrimPrefix(r.version, "v"), "-")
	if !candidate {
		return number
	}
	return number + "~" + strings.ReplaceAll(rest, "-", ".")
}
