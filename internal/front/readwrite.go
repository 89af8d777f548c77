package front

import (
	"strconv"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/core/timeline"
)

// ParseReadWrite reads an operation of the oracle of reads and writes, of a name in lower case: write, peek, read, or apply with a time in unix
// milliseconds. has says that there is a time. Errors match isotone.ErrInvalidArgument.
func ParseReadWrite(name, at string, has bool) (op timeline.Op, ms uint64, err error) {
	for op = timeline.OpWrite; op <= timeline.OpApply && op.String() != name; op++ {
	}
	if op > timeline.OpApply {
		return op, 0, isotone.Errorf(isotone.CodeInvalidArgument, "operation %.40q: want write, peek, read or apply", name)
	}
	if has != (op == timeline.OpApply) {
		return op, 0, isotone.Errorf(isotone.CodeInvalidArgument, "apply has a time, which is at=MS over HTTP, and %s, %s and %s have none", timeline.OpWrite, timeline.OpPeek, timeline.OpRead)
	}
	if !has {
		return op, 0, nil
	}
	if ms, err = strconv.ParseUint(at, 10, 64); err != nil {
		return op, 0, isotone.Errorf(isotone.CodeInvalidArgument, "time %.40q: want unix milliseconds in decimal", at)
	}
	return op, ms, nil
}
