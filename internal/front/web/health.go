package web

import (
	"net/http"
	"strconv"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/front/httpapi"
)

func (h *handler) up(w http.ResponseWriter, _ *http.Request) string {
	return answerOK(w)
}

func (h *handler) ready(w http.ResponseWriter, r *http.Request) string {
	return answerReady(w, r, h.backend.Status().NotReady)
}

func (h *handler) readyTimestamps(w http.ResponseWriter, r *http.Request) string {
	return answerReady(w, r, h.backend.Status().NotReadyTimestamps)
}

func (h *handler) readyIDs(w http.ResponseWriter, r *http.Request) string {
	return answerReady(w, r, h.noIDs())
}

// noIDs says why no ids are made now, or "". The ids themselves are asked as well: the status
// reports that there is no worker yet only when one was refused.
func (h *handler) noIDs() string {
	if reason := h.backend.Status().NotReadyIDs; reason != "" {
		return reason
	}
	if _, _, err := h.ids.Worker(); err != nil {
		return httpapi.FaultOf(err).Message
	}
	return ""
}

// answerReady answers "ok", or 503 with the reason.
func answerReady(w http.ResponseWriter, r *http.Request, reason string) string {
	if reason != "" {
		return fail(w, r, isotone.Errorf(isotone.CodeNoLeader, "%s", reason))
	}
	return answerOK(w)
}

func answerOK(w http.ResponseWriter) string {
	w.Header()["Content-Type"] = contentTypeText
	w.Header()["Content-Length"] = []string{"2"}
	_, _ = w.Write([]byte("ok"))
	return httpapi.CodeOK
}

// livez reports that the process answers. What may be wrong with it besides is no reason to
// restart it: a node that cannot go on ends by itself.
func (h *handler) livez(w http.ResponseWriter, r *http.Request) string {
	return answerHealth(w, r, "livez", httpapi.Check{Name: "ping"})
}

func (h *handler) readyz(w http.ResponseWriter, r *http.Request) string {
	checks := []httpapi.Check{{Name: "timestamps", Failed: h.backend.Status().NotReadyTimestamps}}
	if h.ids != nil {
		checks = append(checks, httpapi.Check{Name: "ids", Failed: h.noIDs()})
	}
	return answerHealth(w, r, "readyz", checks...)
}

func answerHealth(w http.ResponseWriter, r *http.Request, name string, checks ...httpapi.Check) string {
	body, ok := httpapi.Health(name, checks, r.URL.RawQuery)
	header := w.Header()
	header["Content-Type"] = contentTypeText
	header["Content-Length"] = []string{strconv.Itoa(len(body))}
	code := httpapi.CodeOK
	if !ok {
		code = string(isotone.CodeNoLeader)
		w.WriteHeader(http.StatusServiceUnavailable)
	}
	_, _ = w.Write([]byte(body))
	return code
}
