package config

import (
	"fmt"
	"strings"

	"github.com/isotone/isotone/snowflake"
)

// snowflakes checks the settings of ids.
func (f *Faults) snowflakes(s *Settings) {
	epoch, ok := s.SnowflakeEpochMS.within(0, 1<<62)
	if !ok {
		f.add("snowflake-epoch-ms", string(s.SnowflakeEpochMS), "want unix milliseconds, not before 1970")
		epoch = 0 // which is no fault of the layout
	}
	layout, err := snowflake.ParseLayout(s.SnowflakeLayout, epoch)
	if err != nil {
		_, want, _ := strings.Cut(err.Error(), ": ") // without its code
		f.add("snowflake-layout", s.SnowflakeLayout, want)
	}
	f.number("snowflake-lease-ms", s.SnowflakeLeaseMS, snowflakeLeaseMSMin, snowflakeLeaseMSMax)
	f.number("snowflake-workers", s.SnowflakeWorkers, 0, snowflakeWorkersMax)
	switch {
	case s.WorkerID == "" && s.DatacenterID == "":
		return
	case s.WorkerID == "":
		f.add("worker-id", "", "want a number, as DATACENTER_ID is set")
		return
	case s.SnowflakeWorkers.Int() > 1:
		f.add("snowflake-workers", string(s.SnowflakeWorkers), "want 0 or 1, as WORKER_ID is set: one node, one worker")
	}
	if err != nil {
		return
	}
	f.number("worker-id", s.WorkerID, 0, 1<<layout.WorkerBits-1)
	if s.DatacenterID != "" {
		f.number("datacenter-id", s.DatacenterID, 0, 1<<layout.DatacenterBits-1)
	}
	if w, err := layout.Join(s.DatacenterID.Int(), s.WorkerID.Int()); err == nil && w >= leasedWorkersMax {
		f.add("worker-id", string(s.WorkerID), fmt.Sprintf("want one of the first %d of the layout: the cluster keeps no more", leasedWorkersMax))
	}
}

// leasedWorkersMax is how many worker ids a cluster leases at most.
const leasedWorkersMax = 1024

// Snowflakes returns how ids are laid out, and the worker that is this node's alone, or -1.
func (s *Settings) Snowflakes() (layout snowflake.Layout, worker int, err error) {
	layout, err = snowflake.ParseLayout(s.SnowflakeLayout, s.SnowflakeEpochMS.int64())
	if err != nil || s.WorkerID == "" {
		return layout, -1, err
	}
	worker, err = layout.Join(s.DatacenterID.Int(), s.WorkerID.Int())
	return layout, worker, err
}
