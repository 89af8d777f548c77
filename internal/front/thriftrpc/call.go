package thriftrpc

// The types of a message, the same in all protocols.
const (
	kindCall      = 1
	kindReply     = 2
	kindException = 3
)

// The types of TApplicationException in use.
const (
	faultUnknownMethod = 1
	faultMessageType   = 2
	faultInternal      = 6
	faultProtocol      = 7
)

// The numbers and names of fields in use.
const (
	fieldSuccess = 0 // of a result
	fieldAgent   = 1 // of the arguments of get_id
	fieldMessage = 1 // of a TApplicationException
	fieldKind    = 2 // the same

	nameSuccess = "success"
	nameAgent   = "useragent"
	nameMessage = "message"
	nameKind    = "type"
)

// style is the variant of the protocol that a call was written in. The answer has the same.
type style uint8

const (
	styleNormal      style = iota
	styleUnversioned       // binary without a version
	styleSimple            // simplejson
	styleBare              // simplejson, a struct without a message
)

// call is a message as read. Its slices are valid until the next one is read.
type call struct {
	name   []byte
	kind   byte
	seq    int32
	style  style
	headed bool   // all of the above has been read
	agent  []byte // the argument of get_id
	given  bool   // agent has been read
}

// fault is a TApplicationException.
type fault struct {
	kind    int32
	message string
}

// codec reads and writes the messages of one protocol. It has no state.
type codec interface {
	// read reads one message. It returns errShort if the message is incomplete, and a
	// malformed if it is invalid; if c.headed is true then, the error can be answered.
	read(r *cursor, c *call) error
	// The others append a whole message that answers c: a result, or a TApplicationException.
	appendResult(b []byte, c *call, value int64) []byte
	appendFault(b []byte, c *call, e fault) []byte
}
