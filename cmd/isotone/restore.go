package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/isotone/isotone/internal/core/oracle"
	"github.com/isotone/isotone/internal/core/replica"
	"github.com/isotone/isotone/internal/host/backup"
	"github.com/isotone/isotone/internal/host/config"
	"github.com/isotone/isotone/internal/host/storage"
	"github.com/isotone/isotone/snowflake"
)

// restoreFlags are those of both commands that make a new cluster of an old one.
type restoreFlags struct {
	config.Flags
	stopPoint
	Margin time.Duration `name:"margin" default:"10s" help:"How far above all that is known the new cluster begins, which is the backup, this machine's clock and 10s, and --floor; up to 24h: more than the clocks of the old and the new machines differ."`
	Floor  *string       `name:"floor" placeholder:"TIMESTAMP" help:"A timestamp above which the new cluster begins at least: the largest that any client has seen. As floor raise takes it."`
	Force  bool          `name:"force" help:"Permit a beginning more than 24 hours ahead of the clock, a backup or a note that is newer than the clock, a --floor that contradicts the backup, and a note that cannot be used."`
	JSON   bool          `name:"json" help:"Print the answer as JSON."`
	Yes    bool          `name:"yes" short:"y" help:"Do not ask for confirmation."`
}

// restoreCmd prepares one data directory of a restored cluster; see docs/backup.md.
type restoreCmd struct {
	restoreFlags
	File string `arg:"" complete:"files" help:"Backup to restore."`
}

// recoverCmd makes a new cluster of the data directory of one node; see docs/backup.md.
type recoverCmd struct {
	restoreFlags
	ForceNewCluster bool `name:"force-new-cluster" help:"Make a new cluster of this node alone. Required."`
}

// restoreMarginMax bounds --margin: time stands still for about that long.
const restoreMarginMax = 24 * time.Hour

// restoreSummary describes what was prepared, for --json.
type restoreSummary struct {
	NodeID   uint64   `json:"nodeID"`
	Founders []uint64 `json:"founders"`
	DataDir  string   `json:"dataDir"`
	// Backup is the digest of the backup, OfCluster the lost cluster, Taken when by its clock.
	Backup    string    `json:"backup"`
	OfCluster string    `json:"ofCluster"`
	Taken     time.Time `json:"taken"`
	// Floor is in unix nanoseconds: no timestamp of the new cluster has a smaller time.
	Floor uint64 `json:"floor,string"`
	// MemberIDs and ClientIDs are when nodes and clients can lease workers again.
	MemberIDs time.Time `json:"memberIDs"`
	ClientIDs time.Time `json:"clientIDs"`
	// SetAside is the former data file, with recover.
	SetAside string `json:"setAside,omitempty"`
}

// settings parses the settings that say whose directory is prepared.
func (f *restoreFlags) settings() (s config.Settings, founders []uint64, err error) {
	if s, err = f.Parse(); err != nil {
		return s, nil, err
	}
	switch {
	case s.Join != nil && s.PeersSRV == nil:
		return s, nil, usagef("JOIN is set, but a restored cluster is formed by its initial members: leave JOIN away, and for several nodes name all in PEERS")
	case f.Margin < 0 || f.Margin > restoreMarginMax:
		return s, nil, usagef("--margin: want 0s to %v", restoreMarginMax)
	case s.PeersSRV != nil && s.PeersSRV.IDs() == nil:
		return s, nil, usagef("PEERS names records in DNS whose IDs only DNS knows; list the initial members in PEERS")
	case s.PeersSRV != nil:
		return s, s.PeersSRV.IDs(), nil
	}
	return s, slices.Sorted(maps.Keys(s.PeerMap())), nil
}

// begin returns where the new cluster begins, in unix nanoseconds; see [replica.Beginning], whose
// Earlier and Prepared are given.
func (f *restoreFlags) begin(b replica.Beginning, d backup.Document, now time.Time) (uint64, error) {
	b.Backup = replica.Mark{Time: d.Ceiling, At: uint64(max(0, d.Taken.UnixNano()))}
	b.Now, b.Margin, b.Force = uint64(max(0, now.UnixNano())), f.Margin, f.Force
	if f.Floor != nil {
		floor, err := parseFloor(*f.Floor, now)
		if err != nil {
			return 0, usageError("--floor: " + err.Error())
		}
		b.Floor = floor.Time
	}
	return b.Time()
}

// checkSpace refuses settings by which the new cluster would lease no workers: the layout of IDs never changes (I9).
func checkSpace(state oracle.State, s config.Settings) error {
	if have := state.Space; have != (oracle.Space{}) && have != oracle.Space(s.SnowflakeLayout) {
		return usagef("the lost cluster made IDs of layout %v from %d ms on, and these settings say %v from %d ms on, so the new one would make none: set SNOWFLAKE_LAYOUT=%v and SNOWFLAKE_EPOCH_MS=%d",
			snowflake.Layout(have), have.Epoch, s.SnowflakeLayout, s.SnowflakeLayout.Epoch, snowflake.Layout(have), have.Epoch)
	}
	return nil
}

// prepared returns where the cluster begins that a data directory is prepared for, 0 if that is none of the lost
// cluster. A seed that cannot be read is replaced.
func prepared(dir, lost string) uint64 {
	if seed, err := backup.ReadSeed(dir); err == nil && seed != nil && seed.Backup.ClusterID == lost {
		return seed.Floor
	}
	return 0
}

func (f *restoreFlags) confirm(ctx context.Context, con console, question string) error {
	if f.Yes {
		return nil
	}
	return confirm(ctx, con, question)
}

// report prints what was prepared, and how to go on.
func (f *restoreFlags) report(con console, seed *backup.Seed, state oracle.State, dir, setAside string) error {
	fence := oracle.Restored(state, seed.Floor).Fence
	s := restoreSummary{
		NodeID: seed.NodeID, Founders: seed.Founders, DataDir: dir, Backup: seed.Backup.Sum, OfCluster: seed.Backup.ClusterID, Taken: seed.Backup.Taken,
		Floor: seed.Floor, MemberIDs: time.UnixMilli(int64(fence.Members)).UTC(), ClientIDs: time.UnixMilli(int64(fence.Clients)).UTC(), SetAside: setAside,
	}
	if f.JSON {
		return json.NewEncoder(con.out).Encode(s)
	}
	writeRestored(con.out, s)
	return nil
}

func writeRestored(w io.Writer, s restoreSummary) {
	fmt.Fprintf(w, "%s is ready to form a new cluster of node %s from the backup %.16s of cluster %s, taken at %s\n",
		s.DataDir, numbers(s.Founders), s.Backup, s.OfCluster, s.Taken.Format(time.RFC3339))
	if s.SetAside != "" {
		fmt.Fprintf(w, "the former data is in %s\n", s.SetAside)
	}
	fmt.Fprintf(w, "timestamps from  %s\nIDs of nodes     %s\nIDs of clients   %s\n", nanoTime(s.Floor), s.MemberIDs.Format(time.RFC3339), s.ClientIDs.Format(time.RFC3339))
	var others []string
	for _, id := range s.Founders {
		if id != s.NodeID {
			others = append(others, fmt.Sprint(id))
		}
	}
	if len(others) > 0 {
		fmt.Fprintf(w, "Restore the same backup on node %s as well, then start all nodes with these settings: isotone serve\n", strings.Join(others, " and node "))
		return
	}
	fmt.Fprintf(w, "Start it with these settings: isotone serve\nOther nodes can be added then: isotone member add\n")
}

// Run prepares a data directory.
func (c *restoreCmd) Run(ctx context.Context, con console) error {
	s, founders, err := c.settings()
	if err != nil {
		return err
	}
	if refusal := s.CheckAlone(false); refusal != nil { // several nodes without PEERS would form a cluster each
		return usageError(refusal.Error())
	}
	d, state, err := readBackup(c.File)
	if err == nil {
		err = checkSpace(state, s)
	}
	if err != nil {
		return err
	}
	now := time.Now()
	floor, err := c.above(con, d, s, now)
	if err != nil {
		return err
	}
	if err := errors.Join(refuseData(s.DataDir), c.refusePrepared(s.DataDir, d)); err != nil {
		return err
	}
	if err := c.confirm(ctx, con, fmt.Sprintf("Cluster %s, from which the backup was taken at %s, must be gone for good: none of its nodes may ever run again. The new one begins at %s.",
		d.ClusterID, d.Taken.Format(time.RFC3339), nanoTime(floor))); err != nil {
		return err
	}
	seed := &backup.Seed{NodeID: s.NodeID, Founders: founders, Floor: floor, Backup: d}
	err = c.writeSeed(s.DataDir, seed, func() { // before any cluster can begin there
		if err := backup.WriteNote(c.File, s.NodeID, backup.Note{Backup: d.Sum, Floor: floor, At: now}); err != nil {
			fmt.Fprintf(con.err, "warning: cannot note beside the backup where the cluster begins (%v); to restore the backup a second time, give the largest timestamp of this cluster with --floor\n", err)
		}
	})
	if err != nil {
		return err
	}
	return c.report(con, seed, state, s.DataDir, "")
}

// above returns where the new cluster begins. Notes beside the backup say where earlier ones did, except for
// the one for which the data directory is prepared.
func (c *restoreCmd) above(con console, d backup.Document, s config.Settings, now time.Time) (uint64, error) {
	b := replica.Beginning{Prepared: prepared(s.DataDir, d.ClusterID)}
	notes, err := backup.ReadNotes(c.File, d.Sum)
	switch {
	case err != nil && !c.Force:
		return 0, err
	case err != nil:
		fmt.Fprintf(con.err, "warning: %v\n", err)
	}
	for _, n := range notes {
		if n.Floor != b.Prepared {
			b.Earlier = append(b.Earlier, replica.Mark{Time: n.Floor, At: uint64(max(0, n.At.UnixNano()))})
		}
	}
	return c.begin(b, d, now)
}

// refusePrepared refuses a directory that is prepared for a cluster from another one: what is known of that would be lost.
func (c *restoreCmd) refusePrepared(dir string, d backup.Document) error {
	seed, err := backup.ReadSeed(dir)
	if err != nil || seed == nil || seed.Backup.ClusterID == d.ClusterID || c.Force {
		return nil // what cannot be read is replaced
	}
	return fmt.Errorf("%s is prepared for a new cluster from cluster %s, which begins at %s, and the backup is of cluster %s: name another DATA_DIR, or replace what is prepared with --force",
		dir, seed.Backup.ClusterID, nanoTime(seed.Floor), d.ClusterID)
}

// readBackup reads a backup and the state in it.
func readBackup(path string) (d backup.Document, state oracle.State, err error) {
	b, err := backup.Read(path)
	if err != nil {
		return d, state, err
	}
	if d, err = backup.Decode(b); err == nil {
		state, err = decodeBackup(d)
	}
	if err != nil {
		err = fmt.Errorf("%s: %w", path, err)
	}
	return d, state, err
}

// writeSeed prepares a data directory without data. Before that, but once nothing keeps it from it, it calls before.
func (f *restoreFlags) writeSeed(path string, seed *backup.Seed, before func()) error {
	dir, err := storage.OpenDirectory(path)
	if err != nil {
		return err
	}
	err = refuseData(path) // now that it is locked
	if err == nil {
		before()
		err = backup.WriteSeed(path, seed, f.step)
	}
	return errors.Join(err, dir.Close())
}

// refuseData refuses a directory from which a node was ever started.
func refuseData(dir string) error {
	hasData, err := storage.HasData(dir)
	if hasData {
		err = fmt.Errorf("the data directory %s has data of a node, and a backup is restored into an empty one: name another DATA_DIR, or move the old one away", dir)
	}
	return err
}

// Run makes a new cluster of a data directory. Killed at any step, it leaves the directory as
// it was, perhaps with a seed that the old data makes useless; or with the data set aside and
// the seed, which is all that it does. The command can be run again in either case.
func (c *recoverCmd) Run(ctx context.Context, con console) error {
	if !c.ForceNewCluster {
		return usagef("recover makes a new cluster of one node's data, and gives up what the others have; confirm with --force-new-cluster. " +
			"While a majority of the voters is left, replace the lost ones instead: isotone member replace")
	}
	s, founders, err := c.settings()
	if err != nil {
		return err
	}
	if len(founders) != 1 {
		return usagef("recover makes a cluster of this node alone: leave PEERS away, and add the others later (isotone member add); " +
			"for a cluster of several at once, back up this directory (isotone backup --data-dir DIR FILE) and restore that everywhere")
	}
	hasData, err := storage.HasData(s.DataDir)
	if err != nil {
		return err
	}
	if !hasData {
		return c.again(ctx, con, s)
	}
	dir, err := openStopped(s.DataDir)
	if err != nil {
		return err
	}
	seed, state, aside, err := c.recover(ctx, con, s, dir)
	if err := errors.Join(err, dir.Close()); err != nil {
		return err
	}
	return c.report(con, seed, state, s.DataDir, aside)
}

func (c *recoverCmd) recover(ctx context.Context, con console, s config.Settings, dir *storage.Directory) (*backup.Seed, oracle.State, string, error) {
	fail := func(err error) (*backup.Seed, oracle.State, string, error) { return nil, oracle.State{}, "", err }
	id, d, err := backupOf(dir, s.DataDir)
	if err != nil {
		return fail(err)
	}
	if have := oracle.NodeOf(id.NodeID); have != s.NodeID {
		return fail(usagef("the data directory %s belongs to node %d, not to node %d: set NODE_ID=%d", s.DataDir, have, s.NodeID, have))
	}
	state, err := decodeBackup(d)
	if err == nil {
		err = checkSpace(state, s)
	}
	if err != nil {
		return fail(err)
	}
	floor, err := c.begin(replica.Beginning{Prepared: prepared(s.DataDir, d.ClusterID)}, d, time.Now())
	if err != nil {
		return fail(err)
	}
	if err := c.confirm(ctx, con, fmt.Sprintf("The new cluster has only what node %d knew of cluster %s. No other node of that cluster may ever run again. The new one begins at %s.",
		s.NodeID, d.ClusterID, nanoTime(floor))); err != nil {
		return fail(err)
	}
	seed := &backup.Seed{NodeID: s.NodeID, Founders: []uint64{s.NodeID}, Floor: floor, Backup: d}
	if err := backup.WriteSeed(s.DataDir, seed, c.step); err != nil {
		return fail(err)
	}
	c.step("seeded")
	aside, err := dir.SetAside()
	c.step("aside")
	return seed, state, aside, err
}

// again handles a directory without data: recover has set it aside already. What is prepared is raised to where the
// command would begin now, and never lowered.
func (c *recoverCmd) again(ctx context.Context, con console, s config.Settings) error {
	seed, err := backup.ReadSeed(s.DataDir)
	if err != nil {
		return err
	}
	if seed == nil {
		return fmt.Errorf("%s holds no data of a node", s.DataDir)
	}
	if err := seed.CheckNode(s.NodeID, []uint64{s.NodeID}); err != nil {
		return err
	}
	state, err := decodeBackup(seed.Backup)
	if err == nil {
		err = checkSpace(state, s)
	}
	if err != nil {
		return err
	}
	floor, err := c.begin(replica.Beginning{Prepared: seed.Floor}, seed.Backup, time.Now())
	if err != nil {
		return err
	}
	if err := c.confirm(ctx, con, fmt.Sprintf("%s is prepared for a new cluster already, which begins at %s. It is to begin at %s instead.", s.DataDir, nanoTime(seed.Floor), nanoTime(floor))); err != nil {
		return err
	}
	seed.Floor = floor
	if err := c.writeSeed(s.DataDir, seed, func() {}); err != nil {
		return err
	}
	return c.report(con, seed, state, s.DataDir, "")
}
