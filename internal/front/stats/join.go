package stats

import (
	"cmp"
	"slices"
	"strings"
	"time"
)

const (
	// joinWindow bounds the requests that wait for their line in another file: some 30 MB,
	// and seconds of a fast proxy. Clocks and queues decide how far apart lines about one
	// request are.
	joinWindow = 1 << 17
	// sameIDMax bounds those with the same ID, since clients choose IDs.
	sameIDMax = 8
)

// joiner finds lines about the same request in different files.
type joiner struct {
	waiting map[string][]half
	ring    []string // the waiting IDs, in order of arrival
	next    int
	pairs   map[[2]int]*pair
	top     int
}

// half is a request in one file.
type half struct {
	file  int
	found uint32 // bit i: also in file i
	wall  time.Duration
}

// pair counts the requests that two files have in common. The outer file is the one where they
// take longer, which is known only at the end.
type pair struct {
	requests uint64
	wall     [2]times
	more     [2]times // by how much either took longer, or 0
	far      []Joined // those with the largest differences, in either direction
}

func newJoiner(top int) *joiner {
	return &joiner{waiting: map[string][]half{}, ring: make([]string, joinWindow), pairs: map[[2]int]*pair{}, top: top}
}

func (j *joiner) add(file int, e *entry) {
	if e.ID == "" {
		return
	}
	mine := half{file: file, found: 1 << file, wall: e.Wall}
	list := j.waiting[e.ID]
	for i := range list {
		if other := &list[i]; mine.found&(1<<other.file) == 0 && other.found&(1<<file) == 0 {
			mine.found |= 1 << other.file
			other.found |= 1 << file
			j.join(e.ID, *other, mine)
		}
	}
	if old := j.ring[j.next]; old != "" {
		j.forget(old)
		list = j.waiting[e.ID] // may have changed
	}
	if len(list) >= sameIDMax {
		list = slices.Delete(list, 0, 1)
	}
	id := strings.Clone(e.ID) // do not keep the whole line
	j.waiting[id] = append(list, mine)
	j.ring[j.next] = id
	j.next = (j.next + 1) % len(j.ring)
}

// forget drops the oldest waiting request with this ID.
func (j *joiner) forget(id string) {
	switch list := j.waiting[id]; {
	case len(list) <= 1:
		delete(j.waiting, id)
	default:
		j.waiting[id] = slices.Delete(list, 0, 1)
	}
}

func (j *joiner) join(id string, a, b half) {
	if a.file > b.file {
		a, b = b, a
	}
	key := [2]int{a.file, b.file}
	p := j.pairs[key]
	if p == nil {
		p = &pair{}
		for i := range 2 {
			p.wall[i], p.more[i] = newTimes(groupDigits), newTimes(groupDigits)
		}
		j.pairs[key] = p
	}
	p.requests++
	p.wall[0].add(a.wall)
	p.wall[1].add(b.wall)
	p.more[0].add(max(0, a.wall-b.wall))
	p.more[1].add(max(0, b.wall-a.wall))
	p.keep(Joined{ID: id, Outer: a.wall, Inner: b.wall}, j.top)
}

func (p *pair) keep(one Joined, most int) {
	size := func(o Joined) time.Duration { return (o.Outer - o.Inner).Abs() }
	if len(p.far) >= most && (most == 0 || size(one) <= size(p.far[most-1])) {
		return
	}
	at, _ := slices.BinarySearchFunc(p.far, size(one), func(o Joined, d time.Duration) int { return cmp.Or(cmp.Compare(d, size(o)), -1) })
	p.far = slices.Insert(p.far, at, one)
	p.far = p.far[:min(len(p.far), most)]
}

// Join sums up the requests that two files have in common, as those of a proxy and its
// backend. Times are in nanoseconds.
type Join struct {
	Outer    string `json:"outer"`
	Inner    string `json:"inner"`
	Requests uint64 `json:"requests"`
	// OuterWall is InnerWall plus Difference: the network, and the work of the outer one.
	OuterWall  Times `json:"outerWall"`
	InnerWall  Times `json:"innerWall"`
	Difference Times `json:"difference"`
	// Farthest are those with the largest difference.
	Farthest []Joined `json:"farthest"`
}

// Joined is one request in two files.
type Joined struct {
	ID    string        `json:"id"`
	Outer time.Duration `json:"outer"`
	Inner time.Duration `json:"inner"`
}

// result returns the joins, those with most requests first.
func (j *joiner) result(names []string) []Join {
	var list []Join
	for files, p := range j.pairs {
		outer, inner := 0, 1
		if p.wall[1].sum > p.wall[0].sum {
			outer, inner = 1, 0
		}
		one := Join{
			Outer: names[files[outer]], Inner: names[files[inner]], Requests: p.requests,
			OuterWall: p.wall[outer].result(), InnerWall: p.wall[inner].result(), Difference: p.more[outer].result(),
		}
		for _, far := range p.far {
			if outer == 1 {
				far.Outer, far.Inner = far.Inner, far.Outer
			}
			one.Farthest = append(one.Farthest, far)
		}
		list = append(list, one)
	}
	slices.SortFunc(list, func(a, b Join) int {
		return cmp.Or(cmp.Compare(b.Requests, a.Requests), cmp.Compare(a.Outer, b.Outer), cmp.Compare(a.Inner, b.Inner))
	})
	return list
}
