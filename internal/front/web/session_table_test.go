package web

import (
	"errors"
	"testing"
	"time"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/core/session"
	"github.com/isotone/isotone/internal/front"
)

// silent is a core that answers nothing.
type silent struct{ conns session.Conn }

func (s *silent) OpenSession(func(session.Message)) session.Conn { s.conns++; return s.conns }
func (*silent) CloseSession(session.Conn)                        {}
func (*silent) AskSession(*front.SessionRequest)                 {}
func (*silent) WatchSessions(*front.SessionWatch)                {}

// TestSessionTable_SessionsThatHaveEndedMakeRoom, and those that live do not.
func TestSessionTable_SessionsThatHaveEndedMakeRoom(t *testing.T) {
	table := newSessionTable(&silent{})
	put := func(id session.ID) (*virtual, error) {
		return table.put(session.Bind{ID: id, Epoch: 1, TTL: time.Minute, Linger: time.Minute}, nil, nil, func(*virtual, *front.SessionRequest, error) {})
	}
	for id := session.ID(1); id <= virtualMax; id++ {
		v, err := put(id)
		if err != nil {
			t.Fatalf("session %d: %v", id, err)
		}
		if id <= 2 {
			v.tell(session.Message{Kind: session.MessageExpired})
		}
	}
	if _, err := put(1); !errors.Is(err, isotone.ErrSessionExpired) {
		t.Errorf("a session that has ended lately: %v", err)
	}
	for _, id := range []session.ID{virtualMax + 1, virtualMax + 2} {
		if _, err := put(id); err != nil {
			t.Errorf("session %d, as two have ended: %v", id, err)
		}
	}
	if _, err := put(virtualMax + 3); !errors.Is(err, isotone.ErrOverloaded) {
		t.Errorf("one too many: %v", err)
	}
}
