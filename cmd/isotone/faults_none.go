//go:build !faults

package main

import (
	"log/slog"

	"github.com/isotone/isotone/internal/node"
)

// faultFlags are the faults that tests cause in a node: none. Builds with the tag faults have some.
type faultFlags struct{}

func (*faultFlags) faults(uint64, *slog.Logger) (node.Clock, node.Steps) { return nil, nil }

func (*faultFlags) level() uint64 { return 0 }

func (*faultFlags) snapshots() uint64 { return 0 }

// stopPoint is where tests kill a command: nowhere.
type stopPoint struct{}

func (*stopPoint) step(string) {}
