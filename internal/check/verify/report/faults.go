package report

import (
	"cmp"
	"slices"

	"github.com/isotone/isotone/internal/check/verify"
)

// faultsMax bounds the faults of a table. Of more of them, those with the longest silences are shown.
const faultsMax = 500

// kind sums up the faults of one kind.
type kind struct {
	name          string
	faults        int
	median, worst float64       // silences, in milliseconds
	of            *verify.Fault // with the longest silence
}

// kinds sums up all faults, in the order in which the kinds were first injected.
func (r run) kinds() []*kind {
	var list []*kind
	silences := map[*kind][]float64{}
	for i := range r.Faults {
		f := &r.Faults[i]
		at := slices.IndexFunc(list, func(k *kind) bool { return k.name == f.Kind })
		if at < 0 {
			at = len(list)
			list = append(list, &kind{name: f.Kind})
		}
		k := list[at]
		k.faults++
		silences[k] = append(silences[k], f.SilentMS)
		if k.of == nil || f.SilentMS > k.worst {
			k.of, k.worst = f, f.SilentMS
		}
	}
	for k, of := range silences {
		slices.Sort(of)
		k.median = of[len(of)/2]
	}
	return list
}

// worst returns the fault with the longest silence, nil if no fault caused one.
func (r run) worst() *verify.Fault {
	var worst *verify.Fault
	for _, k := range r.kinds() {
		if k.worst > 0 && (worst == nil || k.worst > worst.SilentMS) {
			worst = k.of
		}
	}
	return worst
}

// listed returns the faults for a table of at most most rows, by time.
func (r run) listed(most int) []*verify.Fault {
	list := make([]*verify.Fault, len(r.Faults))
	for i := range list {
		list[i] = &r.Faults[i]
	}
	if len(list) > most {
		slices.SortStableFunc(list, func(a, b *verify.Fault) int { return cmp.Compare(b.SilentMS, a.SilentMS) })
		list = list[:most]
	}
	slices.SortStableFunc(list, func(a, b *verify.Fault) int { return cmp.Compare(a.AtS, b.AtS) })
	return list
}
