package config

import (
	"fmt"
	"strings"

	"github.com/isotone/isotone/snowflake"
)

// snowflakes parses the settings of Snowflake IDs.
func (p *parser) snowflakes(f *Flags, s *Settings) {
	epoch, ok := within(f.SnowflakeEpochMS, 0, 1<<62)
	if !ok {
		p.faults.add("snowflake-epoch-ms", f.SnowflakeEpochMS, "want unix milliseconds, not before 1970")
	}
	var err error
	if s.SnowflakeLayout, err = snowflake.ParseLayout(f.SnowflakeLayout, epoch); err != nil {
		_, want, _ := strings.Cut(err.Error(), ": ") // without its code
		p.faults.add("snowflake-layout", f.SnowflakeLayout, want)
	}
	s.SnowflakeLease = p.milliseconds("snowflake-lease-ms", f.SnowflakeLeaseMS, snowflakeLeaseMSMin, snowflakeLeaseMSMax)
	s.SnowflakeWorkers = int(p.number("snowflake-workers", f.SnowflakeWorkers, 0, snowflakeWorkersMax))
	s.FixedWorker = -1
	switch {
	case f.WorkerID == "" && f.DatacenterID == "":
		return
	case f.WorkerID == "":
		p.faults.add("worker-id", "", "want a number, as DATACENTER_ID is set")
		return
	case s.SnowflakeWorkers > 1:
		p.faults.add("snowflake-workers", f.SnowflakeWorkers, "want 0 or 1, as WORKER_ID is set: one node, one worker")
	}
	if err == nil {
		s.FixedWorker = p.fixedWorker(f, s.SnowflakeLayout)
	}
}

// fixedWorker returns the worker ID that WORKER_ID and DATACENTER_ID name.
func (p *parser) fixedWorker(f *Flags, layout snowflake.Layout) int {
	before := len(p.faults)
	worker, datacenter := p.number("worker-id", f.WorkerID, 0, 1<<layout.WorkerBits-1), int64(0)
	if f.DatacenterID != "" {
		datacenter = p.number("datacenter-id", f.DatacenterID, 0, 1<<layout.DatacenterBits-1)
	}
	joined := datacenter<<layout.WorkerBits | worker
	if len(p.faults) == before && joined >= leasedWorkersMax {
		p.faults.add("worker-id", f.WorkerID, fmt.Sprintf("want one of the first %d of the layout: the cluster keeps no more", leasedWorkersMax))
	}
	return int(joined)
}
