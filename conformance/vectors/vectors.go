// Package vectors holds the tables that tests of all clients read; conformance/README.md describes them.
package vectors

import "embed"

// Files has the tables.
//
//go:embed *.json
var Files embed.FS
