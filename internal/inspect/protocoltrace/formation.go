package protocoltrace

import (
	"github.com/isotone/isotone/internal/core/oracle"
	"github.com/isotone/isotone/internal/core/replica"
	"github.com/isotone/isotone/spec"
)

// formationAfter says what a founder does.
func (r *recorder) formationAfter(forming bool, w *replica.Write) {
	if forming && w != nil && w.Snapshot != nil {
		if state, err := oracle.DecodeState(w.Snapshot.GetData()); err == nil {
			r.add(spec.Event{Kind: spec.Prepare, Cluster: state.ClusterID, Members: membersOf(state)})
		}
	}
	if r.forming && !forming {
		r.add(spec.Event{Kind: spec.Form})
	}
	r.forming = forming
}

func membersOf(s oracle.State) (list []spec.Member) {
	for _, m := range s.Members {
		list = append(list, spec.Member{ID: m.ID, Incarnation: m.Incarnation})
	}
	return list
}

func helloOf(h replica.Hello) *spec.Hello {
	return &spec.Hello{Cluster: h.ClusterID, Formed: h.Stage == replica.StageFormed, Incarnation: h.Incarnation, Level: h.Level}
}
