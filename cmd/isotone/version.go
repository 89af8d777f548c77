package main

import (
	"encoding/json"
	"fmt"
	"runtime"
	"runtime/debug"
	"strings"

	"github.com/isotone/isotone/internal/core/oracle"
)

// version is set by the linker for releases: -ldflags "-X main.version=v1.2.3".
var version = "dev"

// revision is the commit and date is when it was made (RFC 3339, UTC). The linker sets them for
// releases; others have them from go build.
var revision, date string

type versionCmd struct {
	JSON bool `name:"json" help:"Print JSON."`
}

// buildVersion describes this binary.
type buildVersion struct {
	Version      string `json:"version"`
	Revision     string `json:"revision,omitempty"`
	Date         string `json:"date,omitempty"` // of the commit, not of the build
	Modified     bool   `json:"modified,omitempty"`
	FeatureLevel uint64 `json:"featureLevel"` // the newest that it supports
	Go           string `json:"go"`
	Platform     string `json:"platform"`
}

func readBuildVersion() buildVersion {
	v := buildVersion{
		Version: version, Revision: revision, Date: date, FeatureLevel: oracle.LevelNewest,
		Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH,
	}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return v
	}
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			v.Revision = s.Value
		case "vcs.time":
			v.Date = s.Value
		case "vcs.modified":
			v.Modified = s.Value == "true"
		}
	}
	return v
}

// String returns the line for people. It leaves out what is not known.
func (v buildVersion) String() string {
	words := []string{"isotone", v.Version}
	for _, word := range []string{v.Revision, v.Date} {
		if word != "" {
			words = append(words, word)
		}
	}
	if v.Modified {
		words = append(words, "modified")
	}
	return strings.Join(append(words, "feature-level", fmt.Sprint(v.FeatureLevel), v.Go, v.Platform), " ")
}

// Run prints the version.
func (c *versionCmd) Run(con console) error {
	v := readBuildVersion()
	if c.JSON {
		return json.NewEncoder(con.out).Encode(v)
	}
	_, err := fmt.Fprintln(con.out, v)
	return err
}
