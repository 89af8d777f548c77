package stops

import (
	"os"
	"path/filepath"
	"testing"

	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"github.com/isotone/isotone/internal/core/oracle"
)

// TestSteps_StopOnlyWhereTheFileSays; internal/check/chaos has processes that stop.
func TestSteps_StopOnlyWhereTheFileSays(t *testing.T) {
	path := filepath.Join(t.TempDir(), "step")
	f := NewSteps(path, 2)
	f.Reached("a step") // the test waits for nothing
	for _, armed := range []string{"2 another step", "3 a step", "leader a step", "2", ""} {
		if err := os.WriteFile(path, []byte(armed), 0o600); err != nil {
			t.Fatal(err)
		}
		f.Reached("a step")
		if b, err := os.ReadFile(path); err != nil || string(b) != armed {
			t.Errorf("%q: %q, %v", armed, b, err)
		}
	}
}

func TestSteps_NameChanges(t *testing.T) {
	change := func(kinds ...raftpb.ConfChangeType) *raftpb.Entry {
		cc := &raftpb.ConfChangeV2{}
		for i, kind := range kinds {
			cc.Changes = append(cc.Changes, &raftpb.ConfChangeSingle{Type: kind.Enum(), NodeId: new(uint64(i + 1))})
		}
		data, err := proto.Marshal(cc)
		if err != nil {
			t.Fatal(err)
		}
		return &raftpb.Entry{Type: raftpb.EntryConfChangeV2.Enum(), Data: data}
	}
	command := func(c oracle.Command) *raftpb.Entry {
		return &raftpb.Entry{Type: raftpb.EntryNormal.Enum(), Data: c.Append(nil)}
	}
	for want, e := range map[string]*raftpb.Entry{
		"add":      change(raftpb.ConfChangeAddLearnerNode),
		"promote":  change(raftpb.ConfChangeAddNode),
		"remove":   change(raftpb.ConfChangeRemoveNode),
		"joint":    change(raftpb.ConfChangeAddNode, raftpb.ConfChangeRemoveNode),
		"leave":    change(),
		"register": command(oracle.Command{Kind: oracle.KindRegister}),
		"update":   command(oracle.Command{Kind: oracle.KindUpdate}),
		"":         command(oracle.Command{Kind: oracle.KindReserve}),
	} {
		if got := changeOf(e); got != want {
			t.Errorf("%v is named %q, want %q", e, got, want)
		}
	}
	if got := changeOf(&raftpb.Entry{Type: raftpb.EntryNormal.Enum()}); got != "" {
		t.Errorf("the entry that opens a term is named %q", got)
	}
}
