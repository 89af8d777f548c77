package main

import (
	"encoding/json"
	"fmt"
	"runtime"
	"runtime/debug"
)

// version is set by the linker for releases: -ldflags "-X main.version=v1.2.3".
var version = "dev"

// revision is the commit, set by the linker for releases; others have it from go build.
var revision string

type versionCmd struct {
	JSON bool `name:"json" help:"Print JSON."`
}

// buildVersion describes this binary.
type buildVersion struct {
	Version  string `json:"version"`
	Revision string `json:"revision,omitempty"`
	Modified bool   `json:"modified,omitempty"`
	Go       string `json:"go"`
	Platform string `json:"platform"`
}

func readBuildVersion() buildVersion {
	v := buildVersion{Version: version, Revision: revision, Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return v
	}
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			v.Revision = s.Value
		case "vcs.modified":
			v.Modified = s.Value == "true"
		}
	}
	return v
}

// Run prints the version.
func (c *versionCmd) Run(con console) error {
	v := readBuildVersion()
	if c.JSON {
		return json.NewEncoder(con.out).Encode(v)
	}
	_, err := fmt.Fprintf(con.out, "isotone %s %s %s %s\n", v.Version, v.Revision, v.Go, v.Platform)
	return err
}
