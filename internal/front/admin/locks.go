package admin

import (
	"net/http"

	"github.com/isotone/isotone"
)

// BreakLock is the action of a [LockAction].
const BreakLock = "break"

// LockAction is the body of POST /admin/locks. It can be repeated: it never touches a later hold of the lock.
type LockAction struct {
	Action string              `json:"action"`
	Name   string              `json:"name"`
	Token  isotone.Timestamp64 `json:"token64"`
}

func (h *Handler) locks(r *http.Request, _ []byte) (any, error) {
	return h.cfg.Operator.Locks(r.Context(), r.URL.Query().Get("prefix"))
}

func (h *Handler) breakLock(r *http.Request, body []byte) (any, error) {
	var a LockAction
	if err := decode(body, &a); err != nil {
		return nil, err
	}
	switch {
	case a.Action != BreakLock:
		return nil, isotone.Errorf(isotone.CodeInvalidArgument, "action: want %s, not %.32q", BreakLock, a.Action)
	case a.Name == "" || a.Token == 0:
		return nil, isotone.Errorf(isotone.CodeInvalidArgument, "want the name of a lock, and the token64 of its holder, as GET /admin/locks shows them")
	}
	return h.cfg.Operator.BreakLock(r.Context(), a.Name, a.Token)
}

func (h *Handler) blockers(r *http.Request, _ []byte) (any, error) {
	group := r.URL.Query().Get("group")
	if group == "" {
		return nil, isotone.Errorf(isotone.CodeInvalidArgument, "group: want the name of a group")
	}
	return h.cfg.Operator.Blockers(r.Context(), group)
}
