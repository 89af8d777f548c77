package probe

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/isotone/isotone/internal/inspect/doctor"
)

const (
	// A node overwrites pages of a file that seldom grows, and so does the measurement.
	pageSize  = 4096
	filePages = 16
)

// measureDisk measures the directory of a node's data, or its nearest parent that exists.
func measureDisk(ctx context.Context, dataDir, dataFile string) doctor.Disk {
	d := doctor.Disk{Dir: dataDir}
	info, err := os.Stat(d.Dir)
	for errors.Is(err, fs.ErrNotExist) {
		d.Missing = true
		parent := filepath.Dir(filepath.Clean(d.Dir))
		if parent == d.Dir {
			break
		}
		d.Dir = parent
		info, err = os.Stat(d.Dir)
	}
	switch {
	case err != nil:
		d.Error = err.Error()
		return d
	case !info.IsDir():
		d.Error = d.Dir + " is not a directory"
		return d
	}
	_, err = os.Stat(filepath.Join(dataDir, dataFile))
	d.HasData = err == nil
	if err := space(&d); err != nil {
		d.Error = err.Error()
		return d
	}
	// A disk that hangs cannot be interrupted: then its goroutine is left behind.
	measured := make(chan writes, 1)
	ctx, cancel := context.WithTimeout(ctx, Timeout)
	defer cancel()
	go func() { measured <- syncWrites(ctx, d.Dir) }()
	w, ok := receive(ctx, measured)
	if !ok {
		d.WriteError = fmt.Sprintf("a write was not synced within %v", Timeout)
		return d
	}
	d.Writes, d.WriteError = len(w.took), w.err
	if len(w.took) > 0 {
		slices.Sort(w.took)
		d.P50, d.P99 = quantile(w.took, 0.5), quantile(w.took, 0.99)
	}
	return d
}

// grace is for the write under way when the time is over, and the removal of the file.
const grace = 500 * time.Millisecond

// receive returns what was measured, unless there is nothing until grace after the end of ctx.
func receive(ctx context.Context, measured <-chan writes) (w writes, ok bool) {
	select {
	case w = <-measured:
		return w, true
	case <-ctx.Done():
	}
	select {
	case w = <-measured:
		return w, true
	case <-time.After(grace):
		return w, false
	}
}

func quantile(sorted []time.Duration, q float64) time.Duration {
	return sorted[min(len(sorted)-1, int(q*float64(len(sorted))))]
}

// writes is how long synced writes took, and why they ended early, if they did.
type writes struct {
	took []time.Duration
	err  string
}

// syncWrites writes to a temporary file in dir until there are enough figures or ctx ends, which
// is no error, and removes the file.
func syncWrites(ctx context.Context, dir string) (w writes) {
	f, err := os.CreateTemp(dir, ".isotone-doctor-*")
	if err != nil {
		return writes{err: err.Error()}
	}
	defer func() {
		if err := errors.Join(f.Close(), os.Remove(f.Name())); err != nil && w.err == "" {
			w.err = err.Error()
		}
	}()
	if _, err := f.Write(make([]byte, filePages*pageSize)); err != nil {
		return writes{err: err.Error()}
	}
	if err := f.Sync(); err != nil {
		return writes{err: err.Error()}
	}
	page := make([]byte, pageSize)
	for i := 0; i < writesMax && ctx.Err() == nil; i++ {
		page[0] = byte(i)
		began := time.Now()
		_, err := f.WriteAt(page, int64(i%filePages)*pageSize)
		if err == nil {
			err = dataSync(f)
		}
		if err != nil {
			w.err = err.Error()
			return w
		}
		w.took = append(w.took, time.Since(began))
	}
	return w
}
