package resp

import (
	"time"

	"github.com/isotone/isotone"
	tracing "github.com/isotone/isotone/internal/front/requestid" // a transaction here is that of MULTI
	"github.com/isotone/isotone/internal/host/trace"
)

// traced is a request that is being traced: the TS commands of a batch, or another command.
type traced struct {
	trace.Context
	name   string
	parent [8]byte
	began  time.Time
}

// trace decides whether a request is traced whose caller has the span parent, zero for none, and
// begins its span. It returns nil if not.
func (f *Front) trace(name string, parent tracing.Trace) *traced {
	if f.cfg.Trace == nil {
		return nil
	}
	span, ok := f.cfg.Trace.Begin(trace.Context{Trace: parent.ID, Span: parent.Span}, parent.Flags&1 != 0)
	if !ok {
		return nil
	}
	return &traced{Context: span, name: name, parent: parent.Span, began: time.Now()}
}

// endTrace ends the span of one, which may be nil, with the code of the answer to its commands.
func (f *Front) endTrace(one *traced, code string, commands int) {
	if one == nil {
		return
	}
	f.cfg.Trace.Add(trace.Span{
		Context: one.Context, Parent: one.parent, Name: one.name, Kind: trace.Server, Start: one.began, End: time.Now(),
		Failed: failed(isotone.Code(code)),
		Attrs: []trace.Attr{
			trace.String("isotone.protocol", protocol), trace.String("isotone.code", code), trace.Int("isotone.requests", int64(commands)),
		},
	})
}

// failed reports whether a code says that the request failed here: where HTTP has a status of
// 500 or more.
func failed(code isotone.Code) bool {
	switch code {
	case codeOK, isotone.CodeInvalidArgument, isotone.CodeUnauthorized, isotone.CodeNotFound, isotone.CodeNotLeader, isotone.CodeRegressed:
		return false
	}
	return true
}

// keepParent keeps the span of the caller that counts for the batch: the first one that is
// traced, or else the first one.
func (c *conn) keepParent(parent tracing.Trace) {
	none := tracing.Trace{}
	if parent != none && (c.parent == none || c.parent.Flags&1 == 0 && parent.Flags&1 != 0) {
		c.parent = parent
	}
}
