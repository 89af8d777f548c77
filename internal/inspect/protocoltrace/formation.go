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
			r.add(spec.Event{Kind: spec.Prepare, Cluster: state.ClusterID, Ceiling: state.Ceiling, Members: membersOf(state)})
		}
	}
	if r.forming && !forming {
		r.add(spec.Event{Kind: spec.Form})
	}
	r.forming = forming
}

func membersOf(s oracle.State) (list []spec.Member) {
	for _, m := range s.Members {
		list = append(list, memberOf(m))
	}
	return list
}

func memberOf(m oracle.Member) spec.Member {
	return spec.Member{ID: m.ID, Incarnation: m.Incarnation, Boot: m.Boot, Session: m.Session, Durable: m.Durable}
}

func helloOf(h replica.Hello) *spec.Hello {
	return &spec.Hello{Cluster: h.ClusterID, Formed: h.Stage == replica.StageFormed, Incarnation: h.Incarnation, Boot: h.Boot, Session: h.Session, Last: h.LastIndex, Tick: int64(h.TickNanos), Level: h.Level, Floor: h.SeedFloor}
}
