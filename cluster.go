package isotone

import (
	"fmt"
	"strconv"
)

// ClusterID identifies a cluster. It is fixed when the cluster is formed, and never changes.
// Timestamps of different clusters have no order between them, so an answer from one cluster
// must never be taken for an answer from another (I10). The zero value identifies no cluster.
type ClusterID uint64

// clusterIDDigits is the number of digits of an ID in text.
const clusterIDDigits = 16

// String returns the ID as 16 lower-case hexadecimal digits, the form that every protocol uses.
func (c ClusterID) String() string { return fmt.Sprintf("%016x", uint64(c)) }

// ParseClusterID parses the form that String returns, in either case. Its error matches
// [ErrInvalidArgument].
func ParseClusterID(text string) (ClusterID, error) {
	id, err := strconv.ParseUint(text, 16, 64)
	if err != nil || len(text) != clusterIDDigits || id == 0 {
		return 0, Errorf(CodeInvalidArgument, "cluster ID %.40q: want 16 hexadecimal digits, not all 0", text)
	}
	return ClusterID(id), nil
}
