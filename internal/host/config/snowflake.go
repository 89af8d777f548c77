package config

import (
	"fmt"
	"strings"

	"github.com/isotone/isotone/snowflake"
)

// snowflakes parses the settings of Snowflake IDs.
func (p *parser) snowflakes(f *Flags, s *Settings) {
	epoch := p.snowflakeEpoch(f.SnowflakeEpochMS)
	var err error
	if s.SnowflakeLayout, err = snowflake.ParseLayout(f.SnowflakeLayout, epoch); err != nil {
		_, want, _ := strings.Cut(err.Error(), ": ") // without its code
		p.faults.add("snowflake-layout", f.SnowflakeLayout, want)
	} else if s.SnowflakeLayout.SequenceBits < sequenceBitsMin {
		p.faults.add("snowflake-layout", f.SnowflakeLayout, fmt.Sprintf("want at least %d bits of sequence: with fewer, a node could not make the 65536 IDs that one request may ask for", sequenceBitsMin))
	}
	s.SnowflakeLease = p.milliseconds("snowflake-lease-ms", f.SnowflakeLeaseMS, snowflakeLeaseMSMin, snowflakeLeaseMSMax)
	if least := snowflakeLeaseTicksMin * s.RTT; s.SnowflakeLease > 0 && s.SnowflakeLease < least {
		p.faults.add("snowflake-lease-ms", f.SnowflakeLeaseMS, fmt.Sprintf("want at least %d times RTT_MS, so %d or more: a lease is renewed once in RTT_MS at most, and has to outlast a few that are late",
			snowflakeLeaseTicksMin, least.Milliseconds()))
	}
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

// snowflakeEpoch parses SNOWFLAKE_EPOCH_MS. It refuses other units, which the first lease would fix for the cluster.
func (p *parser) snowflakeEpoch(text string) int64 {
	epoch, ok := within(text, 0, 1<<62)
	want := ""
	switch {
	case !ok:
		want = "want unix milliseconds, not before 1970"
	case epoch > snowflakeEpochMSMax:
		want = "want unix milliseconds, not after the year 9999: these are micro- or nanoseconds"
	case epoch > 0 && epoch <= snowflakeEpochSecondsMax:
		want = fmt.Sprintf("want 0 or unix milliseconds after %d: these are seconds, and as milliseconds %d", int64(snowflakeEpochSecondsMax), epoch*1000)
	default:
		return epoch
	}
	p.faults.add("snowflake-epoch-ms", text, want)
	return 0
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
