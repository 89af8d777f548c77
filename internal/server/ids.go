package server

import (
	"github.com/isotone/isotone/internal/core/oracle"
	"github.com/isotone/isotone/internal/host/config"
	"github.com/isotone/isotone/internal/node"
)

// idConfig returns which Snowflake IDs a node makes.
func idConfig(s *config.Settings) node.IDConfig {
	worker := s.FixedWorker
	if worker < 0 {
		worker = oracle.AnyWorker
	}
	return node.IDConfig{
		Layout: s.SnowflakeLayout, Workers: s.SnowflakeWorkers, FixedWorker: worker, Lease: s.SnowflakeLease,
	}
}
