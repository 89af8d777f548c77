package pd

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
)

// Keyspace groups. A file maps keyspaces to groups. Group g is the timeline pd/g; group 0 is the default order, and has all keyspaces that
// the file does not name.
//
// A keyspace that is in several groups belongs to the first of them, in the order of the file, that is not sealed; see serving.go.

const (
	// groupsBytesMax, groupsMax and rangesMax bound the file, groupsOfMax the ranges that a keyspace is in: its groups are looked up for each request.
	groupsBytesMax = 4 << 20
	groupsMax      = 4096
	rangesMax      = 65536
	groupsOfMax    = 8
	// keyspaceMax is the largest ID of a keyspace, as in PD. The ID of clients without a keyspace is larger.
	keyspaceMax = 1<<24 - 1
	// groupsCheckEvery is how often [Groups.Run] looks whether the file has changed.
	groupsCheckEvery = time.Second
)

// group is a keyspace group of the file.
type group struct {
	id       uint32
	timeline string
}

// span is a range of keyspaces, from its first one up to that of the next span, which have the same groups.
type span struct {
	first  uint32
	groups []*group
}

// Groups maps keyspaces to groups, as a file says. It is safe for concurrent use; [Groups.Run] may be called once.
type Groups struct {
	file    string
	log     *slog.Logger
	spans   atomic.Pointer[[]span]
	sum     [sha256.Size]byte // of what was read last
	refused bool
}

// OpenGroups reads the file. Its error names everything that is wrong with it.
func OpenGroups(file string, log *slog.Logger) (*Groups, error) {
	g := &Groups{file: file, log: log}
	if _, err := g.read(); err != nil {
		return nil, err
	}
	return g, nil
}

// Run reads the file again when it has changed, until ctx ends. One that cannot be used is logged, and changes nothing.
func (g *Groups) Run(ctx context.Context) {
	tick := time.NewTicker(groupsCheckEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			g.Check()
		}
	}
}

// Check reads the file again if its content has changed. It must not be called while Run is.
func (g *Groups) Check() {
	changed, err := g.read()
	switch {
	case err == nil && changed:
		g.log.Info("the keyspace groups of PD have changed", "file", g.file, "sha256", fmt.Sprintf("%x", g.sum))
	case err != nil && !g.refused:
		g.log.Error("the keyspace groups of PD cannot be used; those before stay in force", "setting", "PD_KEYSPACE_GROUPS", "err", err)
	}
	g.refused = err != nil
}

// read puts the file in force, and reports whether it has another content than the last one that was.
func (g *Groups) read() (changed bool, err error) {
	f, err := os.Open(g.file)
	if err != nil {
		return false, err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, groupsBytesMax+1))
	if err != nil {
		return false, err
	}
	if len(text) > groupsBytesMax {
		return false, fmt.Errorf("%s has more than %d bytes", g.file, groupsBytesMax)
	}
	sum := sha256.Sum256(text)
	if g.spans.Load() != nil && sum == g.sum {
		return false, nil
	}
	spans, err := parseGroups(text)
	if err != nil {
		return false, fmt.Errorf("%s: %w", g.file, err)
	}
	g.sum = sum
	g.spans.Store(&spans)
	return true, nil
}

// of returns the groups of a keyspace, in the order in which they follow each other; none: it is in group 0.
func (g *Groups) of(keyspace uint32) []*group {
	spans := *g.spans.Load()
	at, found := slices.BinarySearchFunc(spans, keyspace, func(s span, k uint32) int { return int(s.first) - int(k) })
	switch {
	case found:
		return spans[at].groups
	case at == 0:
		return nil
	}
	return spans[at-1].groups
}

// groupsFile is the form of the file.
type groupsFile struct {
	Groups []groupEntry `json:"groups"`
}

type groupEntry struct {
	ID        uint32   `json:"id"`
	Keyspaces []string `json:"keyspaces"`
}

// keyspaces is a range of them, with the group that it is in.
type keyspaces struct {
	first, last uint32
	group       int
}

// parseGroups reads a file. Its error names everything that is wrong.
func parseGroups(text []byte) ([]span, error) {
	var file groupsFile
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(&file); err != nil {
		return nil, fmt.Errorf(`want {"groups": [{"id": 1, "keyspaces": ["7", "100-199"]}]}: %w`, err)
	}
	if d.Decode(new(json.RawMessage)) != io.EOF {
		return nil, errors.New("something follows the object")
	}
	if len(file.Groups) > groupsMax {
		return nil, fmt.Errorf("%d groups, at most %d are accepted", len(file.Groups), groupsMax)
	}
	var faults []error
	var all []keyspaces
	groups, seen := make([]*group, len(file.Groups)), map[uint32]bool{}
	for i, e := range file.Groups {
		groups[i] = &group{e.ID, "pd/" + strconv.FormatUint(uint64(e.ID), 10)}
		ranges, err := e.ranges(i)
		if err == nil && seen[e.ID] {
			err = errors.New("it is named twice")
		}
		if err != nil {
			faults = append(faults, fmt.Errorf("group %d: %w", e.ID, err))
		}
		seen[e.ID] = true
		if all = append(all, ranges...); len(all) > rangesMax {
			return nil, errors.Join(append(faults, fmt.Errorf("more than %d ranges of keyspaces", rangesMax))...)
		}
	}
	if faults != nil {
		return nil, errors.Join(faults...)
	}
	return spansOf(all, groups)
}

// ranges returns the keyspaces of the entry, which is at that place in the file.
func (e *groupEntry) ranges(at int) (list []keyspaces, err error) {
	if e.ID == 0 {
		return nil, errors.New("it is the default order, and has all keyspaces that are in no other group")
	}
	for _, text := range e.Keyspaces {
		first, last, isRange := strings.Cut(text, "-")
		if !isRange {
			last = first
		}
		from, err := strconv.ParseUint(first, 10, 32)
		to, err2 := strconv.ParseUint(last, 10, 32)
		if err != nil || err2 != nil || from < 1 || from > to || to > keyspaceMax {
			return nil, fmt.Errorf("keyspaces %.40q: want an ID from 1 to %d, or FIRST-LAST; keyspace 0 stays in group 0, as in PD", text, keyspaceMax)
		}
		list = append(list, keyspaces{uint32(from), uint32(to), at})
	}
	return list, nil
}

// spansOf cuts ranges, which may overlap, into spans, which do not.
func spansOf(all []keyspaces, groups []*group) (spans []span, err error) {
	cuts := make([]uint32, 0, 2*len(all))
	for _, r := range all {
		cuts = append(cuts, r.first, r.last+1)
	}
	slices.Sort(cuts)
	slices.SortFunc(all, func(a, b keyspaces) int { return int(a.first) - int(b.first) })
	var open []keyspaces
	for _, at := range slices.Compact(cuts) {
		open = slices.DeleteFunc(open, func(r keyspaces) bool { return r.last < at })
		for len(all) > 0 && all[0].first == at {
			place, _ := slices.BinarySearchFunc(open, all[0], func(a, b keyspaces) int { return a.group - b.group })
			open, all = slices.Insert(open, place, all[0]), all[1:]
		}
		if len(open) > groupsOfMax {
			return nil, fmt.Errorf("keyspace %d is in more than %d ranges of groups", at, groupsOfMax)
		}
		s := span{first: at}
		for _, r := range open {
			if g := groups[r.group]; !slices.Contains(s.groups, g) {
				s.groups = append(s.groups, g)
			}
		}
		spans = append(spans, s)
	}
	return spans, nil
}
