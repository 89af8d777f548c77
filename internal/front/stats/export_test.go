package stats

import (
	"encoding/json"
	"reflect"
)

// ScanDiffers reports whether the fast way to read a line finds something else in it than
// encoding/json does, and whether it reads the line at all.
func ScanDiffers(b []byte) (differs, read bool) {
	var fast, slow jsonLine
	if !fast.scan(b) {
		return false, false
	}
	err := json.Unmarshal(b, &slow)
	return err != nil || !reflect.DeepEqual(fast, slow), true
}
