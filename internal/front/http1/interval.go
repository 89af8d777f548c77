package http1

import (
	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/core/interval"
	"github.com/isotone/isotone/internal/front"
	"github.com/isotone/isotone/internal/front/httpapi"
)

// appendInterval appends the answer to a request to the cluster clock, and returns its code. The
// clock is read for this request alone: a reading belongs to a request that began before it.
func (a *answers) appendInterval(b []byte, r *request, query []byte, f *Front) (_ []byte, code string) {
	var reading interval.Reading
	var stamps front.Stamps
	var err error
	if r.count == 0 {
		reading, err = f.cfg.Clock.Now()
	} else {
		stamps, err = f.stamper.Make(r.count)
	}
	switch {
	case err != nil:
		fault := httpapi.FaultOf(err)
		return a.spellFault(b, &fault, targetInterval, query, false), string(fault.Code)
	case r.count == 0:
		return a.appendReading(b, r, reading), httpapi.CodeOK
	}
	return a.appendStamps(b, r, stamps), httpapi.CodeOK
}

func (a *answers) appendReading(b []byte, r *request, reading interval.Reading) []byte {
	if r.format != httpapi.JSON {
		return reading.Append(append(b, a.reading...), r.nonce)
	}
	a.body = httpapi.AppendReadingJSON(a.body[:0], reading, r.nonce)
	b = a.appendHeader(b, len(a.body), httpapi.ContentTypeJSON, false)
	return append(append(b, "\r\n"...), a.body...)
}

func (a *answers) appendStamps(b []byte, r *request, stamps front.Stamps) []byte {
	if r.format == httpapi.JSON {
		a.body = appendJSON(a.body[:0], stamps.Count, stamps.At)
		b = a.appendHeader(b, len(a.body), httpapi.ContentTypeJSON, false)
		return append(append(b, "\r\n"...), a.body...)
	}
	if stamps.Count == 1 {
		b = append(b, a.one...)
	} else {
		b = a.appendHeader(b, int(stamps.Count)*isotone.TimestampSize, httpapi.ContentTypeBinary, false)
		b = append(b, "\r\n"...)
	}
	for i := range stamps.Count {
		b, _ = stamps.At(i).AppendBinary(b)
	}
	return b
}
