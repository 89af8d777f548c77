package web

import (
	"net/http"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/front"
	"github.com/isotone/isotone/internal/front/grpc"
)

func newGRPC(h *handler, cfg *Config) *grpc.Server {
	return grpc.New(grpc.Config{
		Backend: cfg.Backend, IDs: cfg.IDs, Clock: cfg.Clock, Sessions: cfg.Sessions, Mode: cfg.Mode, Observe: cfg.Observe, Stopping: h.stopping,
		Stamp: h.stamp, AwaitPast: h.awaitPast, NotReadyIDs: h.noIDs,
		RequestTimeout: cfg.Limits.RequestTimeout, WriteTimeout: cfg.Limits.WriteTimeout,
	})
}

// stamp makes timestamps from a reading of the cluster clock.
func (h *handler) stamp(n uint64) (front.Stamps, error) {
	stamper := h.stampers.Get().(*front.Stamper)
	defer h.stampers.Put(stamper)
	return stamper.Make(n)
}

// isGRPC reports whether the answer to r has the form of gRPC, errors included.
func isGRPC(r *http.Request) bool {
	return r.ProtoMajor > 1 && r.Method == http.MethodPost && grpc.IsContentType(r.Header.Get("Content-Type"))
}

// serveGRPC answers a call.
func (h *handler) serveGRPC(w http.ResponseWriter, r *http.Request) string {
	switch {
	case r.Method != http.MethodPost:
		w.Header().Set("Allow", http.MethodPost)
		return answerFault(w, http.StatusMethodNotAllowed, isotone.CodeInvalidArgument, "method not allowed here; use POST")
	case r.ProtoMajor < 2:
		return answerFault(w, http.StatusHTTPVersionNotSupported, isotone.CodeInvalidArgument, "gRPC needs HTTP/2")
	case !isGRPC(r):
		return answerFault(w, http.StatusUnsupportedMediaType, isotone.CodeInvalidArgument, "Content-Type: want "+grpc.ContentType)
	}
	s := sessionOf(r.Context())
	code, err := h.grpc.Serve(w, r, s)
	switch {
	case err != nil && (isReset(r) || front.ErrorOf(err).Code == isotone.CodeQuotaExceeded):
		return refuse(w, r, s, err)
	case err != nil:
		return fail(w, r, err)
	case grpc.IsStream(r.URL.Path):
		return notObserved
	}
	return code
}
