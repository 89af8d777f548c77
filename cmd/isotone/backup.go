package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/core/oracle"
	"github.com/isotone/isotone/internal/core/replica"
	"github.com/isotone/isotone/internal/host/backup"
	"github.com/isotone/isotone/internal/host/storage"
)

// backupCmd makes a backup; see docs/backup.md.
type backupCmd struct {
	operatorFlags
	stopPoint
	File    string `arg:"" complete:"files" help:"File to write."`
	DataDir string `name:"data-dir" placeholder:"DIR" complete:"dirs" xor:"source" help:"Read the data directory of a stopped node, in place of asking a running cluster."`
	Force   bool   `name:"force" help:"Overwrite FILE."`
}

// backupSummary describes a backup for --json.
type backupSummary struct {
	File      string    `json:"file"`
	ClusterID string    `json:"clusterID"`
	Taken     time.Time `json:"taken"`
	Level     uint64    `json:"level"`
	Index     uint64    `json:"index,string"`
	Ceiling   uint64    `json:"ceiling,string"`
	Sum       string    `json:"sum"`
}

// Run makes a backup.
func (c *backupCmd) Run(ctx context.Context, con console) error {
	if _, err := os.Lstat(c.File); err == nil && !c.Force {
		return usagef("%s exists already; name another file, or overwrite it with --force", c.File)
	}
	path, err := target(c.File)
	if err != nil {
		return err
	}
	d, err := c.take(ctx)
	if err != nil {
		return err
	}
	if _, err := decodeBackup(d); err != nil {
		return err
	}
	if err := backup.Write(path, d.Encode(), c.Force, c.step); err != nil {
		return fmt.Errorf("the backup was not written: %w", err)
	}
	s := backupSummary{File: c.File, ClusterID: d.ClusterID, Taken: d.Taken, Level: d.Level, Index: d.Index, Ceiling: d.Ceiling, Sum: d.Sum}
	return c.print(con, s, func(w io.Writer) {
		fmt.Fprintf(w, "wrote %s: cluster %s at %s, log index %d, timestamps below %s\nTo restore it, see: isotone restore --help\n",
			s.File, s.ClusterID, s.Taken.Format(time.RFC3339), s.Index, nanoTime(s.Ceiling))
	})
}

// target returns the file that is written for the name path: a symbolic link stays, and what it leads to is replaced.
func target(path string) (string, error) {
	info, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return path, nil
	}
	if err == nil {
		path, err = filepath.EvalSymlinks(path)
	}
	if err == nil {
		info, err = os.Stat(path)
	}
	if err == nil && !info.Mode().IsRegular() {
		err = fmt.Errorf("%s is not a regular file", path)
	}
	if err != nil {
		return "", fmt.Errorf("%w; name another file", err)
	}
	return path, nil
}

// nanoTime formats unix nanoseconds.
func nanoTime(ns uint64) string { return time.Unix(0, int64(ns)).UTC().Format(time.RFC3339Nano) }

// take returns the backup of a running cluster or of a stopped node.
func (c *backupCmd) take(ctx context.Context) (backup.Document, error) {
	if c.DataDir == "" {
		leader, err := c.connect(ctx)
		if err != nil {
			return backup.Document{}, err
		}
		b, err := leader.Raw(ctx, http.MethodGet, "/admin/backup", nil)
		if err != nil {
			return backup.Document{}, err
		}
		return backup.Decode(b)
	}
	dir, err := openStopped(c.DataDir)
	if err != nil {
		return backup.Document{}, err
	}
	_, d, err := backupOf(dir, c.DataDir)
	return d, errors.Join(err, dir.Close())
}

// openStopped locks the data directory of a stopped node.
func openStopped(path string) (*storage.Directory, error) {
	if hasData, err := storage.HasData(path); err != nil || !hasData {
		return nil, errors.Join(fmt.Errorf("%s holds no data of a node", path), err)
	}
	dir, err := storage.OpenDirectory(path)
	if errors.Is(err, storage.ErrInUse) {
		err = fmt.Errorf("%w: stop the node first", err)
	}
	return dir, err
}

// backupOf makes a backup of what a stopped node has on disk.
func backupOf(dir *storage.Directory, path string) (storage.Identity, backup.Document, error) {
	written, err := dir.Written() // the others may have gone on since
	if err != nil {
		return storage.Identity{}, backup.Document{}, err
	}
	r, err := dir.Read()
	if err != nil {
		return storage.Identity{}, backup.Document{}, err
	}
	if len(r.Entries) == 0 && r.Snapshot.GetMetadata().GetIndex() <= 1 {
		return r.Identity, backup.Document{}, fmt.Errorf("%s holds nothing of a cluster: none was formed, or this node has not joined it", path)
	}
	b, err := replica.BackupOf(oracle.LevelNewest, r.HardState, r.Snapshot, r.Entries)
	if err != nil {
		return r.Identity, backup.Document{}, fmt.Errorf("%s: %w", path, err)
	}
	d := backup.Document{
		ClusterID: isotone.ClusterID(b.ClusterID).String(), Taken: written, Level: b.Level, Index: b.Index, Ceiling: b.Ceiling, State: b.State,
	}
	d.Seal()
	return r.Identity, d, nil
}

// decodeBackup returns the state in a backup.
func decodeBackup(d backup.Document) (oracle.State, error) {
	state, err := oracle.DecodeState(d.State)
	switch {
	case err != nil:
		return state, fmt.Errorf("the state in the backup cannot be read: %w", err)
	case state.CurrentLevel() > oracle.LevelNewest:
		return state, fmt.Errorf("the backup is of feature level %d, and this version knows %d; use a newer version", state.CurrentLevel(), oracle.LevelNewest)
	case state.Ceiling != d.Ceiling || state.CurrentLevel() != d.Level || isotone.ClusterID(state.ClusterID).String() != d.ClusterID:
		return state, errors.New("the backup contradicts itself: its state is another one than its fields say")
	}
	return state, nil
}
