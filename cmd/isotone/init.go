package main

import (
	"fmt"
	"path/filepath"

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

// absolute returns a path for people, who may be in another directory.
func absolute(path string) string {
	if abs, err := filepath.Abs(path); err == nil {
		return abs
	}
	return path
}
