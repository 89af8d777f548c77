package main

import (
	"fmt"

	"github.com/isotone/isotone/internal/core/oracle"
	"github.com/isotone/isotone/internal/host/config"
	"github.com/isotone/isotone/internal/node"
)

// idConfig says which snowflake ids a node makes.
func idConfig(s *config.Settings) (node.IDConfig, error) {
	layout, worker, err := s.Snowflakes()
	if err != nil {
		return node.IDConfig{}, fmt.Errorf("SNOWFLAKE_LAYOUT: %w", err)
	}
	if worker < 0 {
		worker = oracle.AnyWorker
	}
	return node.IDConfig{
		Layout: layout, Workers: s.SnowflakeWorkers.Int(), FixedWorker: worker, Lease: s.SnowflakeLeaseMS.Milliseconds(),
	}, nil
}
