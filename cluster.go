package isotone

import (
	"fmt"
	"strconv"
)

// ClusterID names a cluster: its first leader draws it at random, and it never changes.
// Two clusters order nothing between them, so an answer of one must never be taken for
// one of the other (I10). The zero value is no cluster's.
type ClusterID uint64

// clusterIDDigits is how many digits an ID has in text.
const clusterIDDigits = 16

// String returns the ID as 16 hexadecimal digits, as every protocol spells it.
func (c ClusterID) String() string { return fmt.Sprintf("%016x", uint64(c)) }

// ParseClusterID reads what String returns, in either case. Its error matches
// [ErrInvalidArgument].
func ParseClusterID(text string) (ClusterID, error) {
	id, err := strconv.ParseUint(text, 16, 64)
	if err != nil || len(text) != clusterIDDigits || id == 0 {
		return 0, Errorf(CodeInvalidArgument, "cluster ID %.40q: want 16 hexadecimal digits, not all 0", text)
	}
	return ClusterID(id), nil
}
