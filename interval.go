package isotone

import "time"

// Interval is what a process knows of the cluster clock at one instant: that it is neither before
// Earliest nor after Latest. Both are unix nanoseconds, on the axis of [Timestamp.Time].
type Interval struct {
	Earliest, Latest uint64
}

// Width returns how uncertain the interval is.
func (i Interval) Width() time.Duration { return time.Duration(i.Latest - i.Earliest) }
