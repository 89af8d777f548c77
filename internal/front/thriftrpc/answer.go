package thriftrpc

import (
	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/auth/access"
	"github.com/isotone/isotone/internal/front"
	"github.com/isotone/isotone/snowflake"
)

// The methods of the interface.
const (
	methodID         = "get_id"
	methodWorker     = "get_worker_id"
	methodTimestamp  = "get_timestamp"
	methodDatacenter = "get_datacenter_id"
	methodOther      = "other" // for Observe
)

// codeOK is the code of a success for Observe.
const codeOK = "ok"

// nameTextMax bounds the bytes of a method's name that an error quotes, faultTextMax an
// error's text: many calls may get the same one at once.
const (
	nameTextMax  = 64
	faultTextMax = 512
)

// answerer answers calls. It belongs to one connection.
type answerer struct {
	cfg    *Config // with defaults
	labels *agentLabels
	codec  codec
	access *access.Session
	agent  string // label of the latest user agent, to skip the lookup
}

// answer appends the answer to c.
func (a *answerer) answer(b []byte, c *call) []byte {
	if c.kind != kindCall {
		a.observe(methodOther, "", string(isotone.CodeInvalidArgument))
		return a.codec.appendFault(b, c, fault{faultMessageType, "a message must be a call that wants an answer"})
	}
	if err := a.access.Require(access.IDs); err != nil {
		a.observe(methodOther, "", codeOf(err))
		return a.fail(b, c, err)
	}
	switch string(c.name) {
	case methodID:
		return a.id(b, c)
	case methodTimestamp:
		return a.result(b, c, methodTimestamp, a.cfg.IDs.NowMillis(), nil)
	case methodWorker:
		_, worker, err := a.cfg.IDs.Worker()
		return a.result(b, c, methodWorker, int64(worker), err)
	case methodDatacenter:
		datacenter, _, err := a.cfg.IDs.Worker()
		return a.result(b, c, methodDatacenter, int64(datacenter), err)
	}
	a.observe(methodOther, "", string(isotone.CodeNotFound))
	return a.codec.appendFault(b, c, fault{faultUnknownMethod, "there is no method " + excerpt(c.name, nameTextMax)})
}

// id answers get_id.
func (a *answerer) id(b []byte, c *call) []byte {
	var id snowflake.ID
	err := a.access.Take(1, 1)
	if err == nil {
		id, err = a.cfg.IDs.NextID()
	}
	if a.cfg.Observe != nil {
		if a.agent == "" || string(c.agent) != a.agent {
			a.agent = a.labels.label(c.agent)
		}
		a.observe(methodID, a.agent, codeOf(err))
	}
	if err != nil {
		return a.fail(b, c, err)
	}
	return a.codec.appendResult(b, c, int64(id))
}

// result answers a method without arguments.
func (a *answerer) result(b []byte, c *call, method string, value int64, err error) []byte {
	a.observe(method, "", codeOf(err))
	if err != nil {
		return a.fail(b, c, err)
	}
	return a.codec.appendResult(b, c, value)
}

// fail answers err as a TApplicationException, the only form of an error that every client
// sees: generated code skips an exception in the result that its file does not declare, and in
// some languages, Go among them, returns 0 then.
func (a *answerer) fail(b []byte, c *call, err error) []byte {
	return a.codec.appendFault(b, c, fault{faultInternal, text(front.ErrorOf(err).Error(), faultTextMax)})
}

func (a *answerer) observe(method, agent, code string) {
	if a.cfg.Observe != nil {
		a.cfg.Observe(method, agent, code)
	}
}

// codeOf returns the code of err, "ok" for nil.
func codeOf(err error) string {
	if err == nil {
		return codeOK
	}
	return string(front.ErrorOf(err).Code)
}
