package survey

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// Interval is what a node knows of the cluster clock.
type Interval struct {
	// MaxSeconds is INTERVAL_MS in seconds.
	MaxSeconds float64 `json:"maxSeconds"`
	// Running is set while the cluster's log says that readings may be told.
	Running bool `json:"running"`
	// Broken is set while this node's steady clock, or the leader's, has a wrong rate.
	Broken bool `json:"broken"`
	// Blamed is set while this node leads and most of the others find that its steady clock has a wrong
	// rate, so that it hands over the leadership.
	Blamed bool `json:"blamed"`
	// WidthSeconds is the uncertainty of the clock, LimitSeconds for how long it may still be used,
	// AgeSeconds the time since the latest reading; nil while no reading is valid.
	WidthSeconds *float64 `json:"widthSeconds"`
	LimitSeconds *float64 `json:"limitSeconds"`
	AgeSeconds   *float64 `json:"ageSeconds"`
}

// IsGood reports whether the node can use and tell an interval.
func (i *Interval) IsGood() bool {
	return !i.Broken && i.WidthSeconds != nil && i.LimitSeconds != nil && *i.LimitSeconds >= 0
}

// cell returns what a table shows: the width, or why there is none.
func (i *Interval) cell() string {
	switch {
	case i == nil:
		return "off"
	case i.Broken:
		return "wrong rate"
	case !i.IsGood():
		return "none"
	}
	return duration(i.WidthSeconds)
}

// intervals reports whether any member reads the cluster clock.
func (r *Report) intervals() bool {
	return slices.ContainsFunc(r.Views, func(v View) bool { return v.State != nil && v.State.Interval != nil })
}

// IntervalSettings returns which nodes have which INTERVAL_MS, 0 for off.
func (r *Report) IntervalSettings() map[time.Duration][]uint64 {
	by := map[time.Duration][]uint64{}
	for _, v := range r.Views {
		if v.State == nil {
			continue
		}
		length := time.Duration(0)
		if i := v.State.Interval; i != nil && i.MaxSeconds > 0 && i.MaxSeconds < spanMax/1e6 {
			length = time.Duration(i.MaxSeconds * 1e9).Round(time.Millisecond)
		}
		by[length] = append(by[length], v.NodeID)
	}
	return by
}

// intervalWarnings warns of members whose settings differ, and of wrong rates.
func (r *Report) intervalWarnings() (warnings []string) {
	if by := r.IntervalSettings(); len(by) > 1 {
		var list []string
		for _, length := range slices.Sorted(maps.Keys(by)) {
			list = append(list, fmt.Sprintf("%d ms on node %s", length.Milliseconds(), strings.Trim(fmt.Sprint(by[length]), "[]")))
		}
		warnings = append(warnings, "the nodes have different INTERVAL_MS: "+strings.Join(list, ", "))
	}
	for _, v := range r.Views {
		if v.State == nil || v.State.Interval == nil {
			continue
		}
		if v.State.Interval.Blamed {
			warnings = append(warnings, fmt.Sprintf("%s hands over the leadership: most of the others find that its steady clock has a wrong rate", v.name()))
		}
		if v.State.Interval.Broken {
			warnings = append(warnings, fmt.Sprintf("%s reads no interval: its steady clock, or the leader's, has a wrong rate", v.name()))
		}
	}
	return warnings
}
