package main

import (
	"fmt"
	"path/filepath"

	"github.com/isotone/isotone/internal/host/backup"
	"github.com/isotone/isotone/internal/host/config"
	"github.com/isotone/isotone/internal/host/storage"
)

// initCmd permits the first start of a node with REQUIRE_DATA.
type initCmd struct {
	DataDir string `name:"data-dir" env:"DATA_DIR" default:"_raft" complete:"dirs" help:"Data directory of the node; created if it does not exist."`
}

// Run permits it.
func (c *initCmd) Run(con console) error {
	hasData, err := storage.PermitFirst(c.DataDir)
	if err != nil {
		return err
	}
	if hasData {
		fmt.Fprintf(con.out, "%s has data of a node already; nothing to do\n", absolute(c.DataDir))
		return nil
	}
	fmt.Fprintf(con.out, "%s is ready for the first start of a node: isotone serve\n", absolute(c.DataDir))
	return nil
}

// checkData refuses to form a cluster with an empty data directory where REQUIRE_DATA is set: the volume
// with the data may not be mounted. With JOIN a directory may be empty, because the cluster decides
// whether this node is a new one; then the node forms none.
func checkData(s *config.Settings) error {
	if !s.RequireData || s.Join != nil && s.PeersSRV == nil {
		return nil
	}
	empty, err := isEmpty(s.DataDir)
	switch {
	case err != nil || !empty:
		return err
	case s.Join != nil:
		s.PeersSRV = nil
		return nil
	}
	dir := absolute(s.DataDir)
	return fmt.Errorf("the data directory %s has no data, and REQUIRE_DATA is set: is its volume mounted? "+
		"If this node never ran before, permit its first start: isotone init --data-dir %s", dir, dir)
}

// isEmpty reports whether a node that is started from dir would begin without data: none ever ran
// there, no backup was restored into it, and the first start is not permitted.
func isEmpty(dir string) (bool, error) {
	if hasData, err := storage.HasData(dir); err != nil || hasData {
		return false, err
	}
	if seed, err := backup.ReadSeed(dir); err != nil || seed != nil {
		return false, err
	}
	permitted, err := storage.FirstPermitted(dir)
	return !permitted, err
}

// absolute returns a path for people, who may be in another directory.
func absolute(path string) string {
	if abs, err := filepath.Abs(path); err == nil {
		return abs
	}
	return path
}
