package main

import (
	"fmt"

	"github.com/isotone/isotone/internal/config"
	"github.com/isotone/isotone/internal/node"
	"github.com/isotone/isotone/internal/oracle"
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
