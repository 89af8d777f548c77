package thriftrpc

// The types of a message, the same in all protocols.
const (
	kindCall      = 1
	kindReply     = 2
	kindException = 3
)

// The types of a TApplicationException that are used here.
const (
	faultUnknownMethod = 1
	faultMessageType   = 2
	faultInternal      = 6
	faultProtocol      = 7
)

// The numbers and names of fields that are used here.
const (
	fieldSuccess = 0 // of a result
	fieldAgent   = 1 // of the arguments of get_id
	fieldMessage = 1 // of every exception
	fieldKind    = 2 // of a TApplicationException

	nameSuccess = "success"
	nameAgent   = "useragent"
	nameMessage = "message"
	nameKind    = "type"
)

// style is how a call was written, where one protocol knows several ways. The answer is
// written likewise.
type style uint8

const (
	styleNormal      style = iota
	styleUnversioned       // binary, before it had a version
	styleSimple            // simplejson
	styleBare              // simplejson without a message around the struct
)

// call is a message as it was read. What it points to is valid until the next one is read.
type call struct {
	name   []byte
	kind   byte
	seq    int32
	style  style
	headed bool   // all of the above has been read
	agent  []byte // the argument of get_id
	given  bool   // agent has been read
}

// thrown is an exception that the interface declares, as a field of the result.
type thrown struct {
	field   int16
	name    string
	message string
}

// fault is a TApplicationException.
type fault struct {
	kind    int32
	message string
}

// wire reads and writes the messages of one protocol. It holds nothing.
type wire interface {
	// read reads one message. It returns errShort when more bytes are needed, and a
	// malformed when no bytes can help; if c.headed is true then, the error can be answered.
	read(r *cursor, c *call) error
	// The others append a whole message that answers c.
	appendResult(b []byte, c *call, value int64) []byte
	appendThrown(b []byte, c *call, e thrown) []byte
	appendFault(b []byte, c *call, e fault) []byte
}
