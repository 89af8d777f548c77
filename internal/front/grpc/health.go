package grpc

import (
	"time"

	"github.com/isotone/isotone"
)

// healthEvery is how often a watched service is looked at.
const healthEvery = 250 * time.Millisecond

// The values of grpc.health.v1.HealthCheckResponse.ServingStatus.
const (
	serving        = 1
	notServing     = 2
	serviceUnknown = 3
)

// statusOf returns the status of a service, as /ready, /ready/timestamps and /ready/ids have it.
func (s *Server) statusOf(service string) uint64 {
	var reason string
	switch service {
	case "":
		reason = s.cfg.Backend.Status().NotReady
	case "isotone.v1.Timestamps":
		reason = s.cfg.Backend.Status().NotReadyTimestamps
	case "isotone.v1.Ids":
		if s.cfg.IDs == nil {
			return serviceUnknown
		}
		reason = s.cfg.NotReadyIDs()
	default:
		return serviceUnknown
	}
	if reason != "" {
		return notServing
	}
	return serving
}

// health is Health.Check.
func (c *call) health(request, b []byte) ([]byte, error) {
	service, err := parseText(request)
	if err != nil {
		return b, err
	}
	status := c.server.statusOf(service)
	if status == serviceUnknown {
		return b, &refusal{codeNotFound, isotone.Errorf(isotone.CodeNotFound, "no such service: %.100q", service)}
	}
	return AppendVarint(b, 1, status), nil
}

// watchHealth is Health.Watch: it tells the status of a service, and each change.
func (c *call) watchHealth() error {
	_ = c.control.SetReadDeadline(time.Now().Add(c.server.cfg.RequestTimeout))
	request, err := c.in.only()
	if err != nil {
		return err
	}
	service, err := parseText(request)
	if err != nil {
		return err
	}
	look := time.NewTicker(healthEvery)
	defer look.Stop()
	var told uint64
	for {
		if status := c.server.statusOf(service); status != told {
			told = status
			if err := c.send(EndFrame(AppendVarint(BeginFrame(nil), 1, told), 0)); err != nil {
				return err
			}
		}
		select {
		case <-look.C:
		case <-c.server.cfg.Stopping:
			return errLeaving
		case <-c.ctx.Done():
			return endOf(c.ctx.Err())
		}
	}
}
